"""Records of one network of a GPU choose better programs of another one, and shuffled ones do not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from benchmarks.gpu_learning.__main__ import main
from benchmarks.gpu_learning.collected import main as collect
from host.schedules.families import rule_versions

TASKS, PROGRAMS = 8, 10


def _measured(folder: Path) -> tuple[Path, Path]:
    """A kit and its results: the estimate leaves out that more rows are faster."""
    generator = random.Random(0)
    tasks: dict[str, Any] = {}
    items: dict[str, Any] = {}
    for model in ("one", "other", "third"):
        for number in range(TASKS):
            programs, results = [], []
            for each in range(PROGRAMS):
                decisions = {"tx": 2 ** generator.randrange(6), "rows": 2 ** generator.randrange(4)}
                estimate = 1e-5 * generator.uniform(1.0, 1.5)
                programs.append(
                    {
                        "rule": "cuda_tiled",
                        "version": rule_versions()["cuda_tiled"],
                        "proposer": "random" if each else "gensor",
                        "decisions": decisions,
                        "estimate_s": estimate,
                    }
                )
                seconds = estimate / decisions["rows"]
                results.append({"seconds": [seconds, 1.01 * seconds], "difference": 0.0})
            results[-1] = {"error": "off by 1 of the largest result"}
            name = f"{model} fused_{number}"
            tasks[name] = {"task": f"{model}-{number}", "programs": programs}
            items[name] = {"task": f"{model}-{number}", "programs": results}
    kit, measured = folder / "kit", folder / "results"
    kit.mkdir()
    measured.mkdir()
    (kit / "plan.json").write_text(json.dumps({"tasks": tasks, "models": ["one", "other", "third"]}))
    (measured / "programs.json").write_text(json.dumps(items))
    return kit, measured


def test_what_the_estimate_leaves_out_is_learned_from_other_networks(tmp_path: Path) -> None:
    kit, measured = _measured(tmp_path)
    data, result = tmp_path / "data.jsonl", tmp_path / "result.json"
    collect([str(kit), str(measured), str(data)])
    main(["--data", str(data), "--json", str(result), "--seeds", "2", "--records", "400"])
    found = json.loads(result.read_text())
    assert found["tasks"] == 3 * TASKS
    assert found["programs"] == 3 * TASKS * (PROGRAMS - 1)
    found = found["by_records"]["400"]
    arms = found["pools"]["all"]
    assert arms["process_mean"]["speed"]["low"] > 1.5
    assert arms["process_mean"]["regret"]["value"] < 1.1 < arms["t"]["regret"]["value"]
    assert arms["process_mean_shuffled"]["speed"]["value"] < arms["process_mean"]["speed"]["value"]
    assert found["order"]["cuda_tiled"]["t_hat"]["mean"] > 0.9 > found["order"]["cuda_tiled"]["t"]["mean"]
