"""Which tasks a kit of arms has, and what is made of their times."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.gpu_written.__main__ import main
from benchmarks.gpu_written.tasks import WithheldTask, chosen_tasks
from host.errors import UserError


@dataclass(frozen=True)
class Space:
    """What is asked of a space."""

    rule: Any
    task: Any


def _task(network: str, rule: str, dtype: str, programs: float, key: str = "") -> WithheldTask:
    name = f"{network} {rule} {dtype} {programs:.0f}"
    space = Space(SimpleNamespace(name=rule), SimpleNamespace(workload_hash=key or name))
    return WithheldTask(name, network, dtype, cast(Any, space), programs)


def test_kinds_and_networks_take_turns_with_the_largest_spaces_first() -> None:
    every = [
        _task(network, rule, "fp16", 100.0 * number)
        for network in ("one", "two")
        for rule in ("cuda_mma", "cuda_tiled")
        for number in range(1, 21)
    ]
    found = chosen_tasks([*every, _task("one", "cuda_rowwise", "fp16", 9.0)], 20)
    kinds = [task.kind for task in found]
    assert kinds.count("cuda_mma fp16") == 15 and kinds.count("cuda_tiled fp16") == 4
    assert "cuda_rowwise fp16" in kinds
    assert {"cuda_mma fp16", "cuda_tiled fp16"} <= set(kinds[:4]), "the first ones are of all kinds"
    products = [task for task in found if task.kind == "cuda_mma fp16"]
    assert {task.network for task in products[:2]} == {"one", "two"}
    assert min(task.programs for task in products) == 1300.0
    assert len({task.name for task in found}) == 20


def test_a_workload_of_two_networks_is_taken_once() -> None:
    found = chosen_tasks([_task(name, "cuda_mma", "fp16", 5.0, "same") for name in ("one", "two")], 9)
    assert [task.network for task in found] == ["one"]
    assert chosen_tasks([], 9) == []


def _measured(folder: Path) -> tuple[Path, Path]:
    """Two tasks: the model's first program is twice as fast as that of chance, and chance finds it among ten."""
    kit, results = folder / "kit", folder / "results"
    kit.mkdir()
    results.mkdir()
    tasks, items = {}, {}
    for number in range(2):
        kind, programs = ("cuda_mma fp16", 9e3) if number else ("cuda_tiled fp32", 9e5)
        # Of the gensor, of chance, of the model; the last one is wrong.
        seconds = [3e-6, 4e-6, 2e-6, 2e-6, 5e-6, 6e-6, 7e-6, None]
        name = f"net {number}"
        tasks[name] = {
            "about": {"kind": kind, "network": "net", "programs": programs},
            "arms": {
                "gensor_t": [[0, 1], [0]],
                "random": [[1], [4]],
                "random32_t": [[1, 3], [1]],
                "tlm32_t": [[7, 2, 6], [2]],
                "tlm_likelihood": [[5, 6], [5]],
            },
            "programs": [{"estimate_s": one or 1e-6} for one in seconds],
        }
        items[name] = {
            "programs": [
                {"error": "off by 1 of the largest result"} if one is None else {"seconds": [one, one, 2 * one]}
                for one in seconds
            ]
        }
    tasks["net never"] = dict(tasks["net 0"])
    items["net failed"] = {"error": "DriverError: lost", "run": ""}
    (kit / "plan.json").write_text(json.dumps({"heading": {}, "tasks": tasks, "models": []}))
    (results / "programs.json").write_text(json.dumps(items))
    (results / "machine.json").write_text(json.dumps({"gpu": {"name": "test GPU"}}))
    return kit, results


def test_arms_are_compared_with_one_measurement_and_ten(tmp_path: Path) -> None:
    kit, results = _measured(tmp_path)
    output = tmp_path / "figures.json"
    assert main([str(kit), str(results), "--json", str(output)]) == 0
    found = json.loads(output.read_text())
    assert (found["tasks"], found["of_tasks"], found["programs"]) == (2, 3, 16)
    assert len(found["errors"]) == 3
    first, ten = (found["ratios"][budget] for budget in ("1", "10"))
    # With the first seed the model's first program is wrong, so that the second seed alone has a figure.
    assert first["tlm32_t/random32_t"]["all"]["geomean"] == pytest.approx(2.0)
    assert first["tlm32_t/random32_t"]["cuda_tiled fp32"]["tasks"] == 1
    assert first["random/gensor_t"]["all"]["geomean"] == pytest.approx(3.0 / 20**0.5)
    assert ten["tlm32_t/random32_t"]["all"]["geomean"] == pytest.approx(1.0)
    assert ten["tlm_likelihood/gensor_t"]["all"]["geomean"] == pytest.approx(0.5)
    assert "random/gensor_t" not in ten
    assert found["large"]["tasks"] == 1
    shares = found["share_of_best"]["10"]
    assert shares["tlm32_t"]["all"] == pytest.approx(1.0)
    assert shares["gensor_t"]["all"] == pytest.approx(2 / 3)
    assert found["order"]["all"]["mean"] == pytest.approx(1.0)
    assert "test GPU" in found["remark"]


def test_a_kit_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    kit, results = _measured(tmp_path)
    (results / "programs.json").unlink()
    with pytest.raises(UserError, match=r"measure with benchmarks\.gpu"):
        main([str(kit), str(results)])
