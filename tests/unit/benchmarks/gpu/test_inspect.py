"""What is read off kernels for a GPU without one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpu import inspect
from benchmarks.gpu.machine_code import multiply_adds, opcodes_of, widths
from benchmarks.result_file import read_result
from host.build.cuda.nvrtc import Nvrtc
from host.errors import UserError
from tests.integration.small_models import convnet

_SOURCE = r"""
extern "C" __global__ void both(unsigned* a, float* c) {
  const int lane = threadIdx.x;
  float d[4] = {1, 2, 3, 4};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[lane]), "r"(a[lane + 1]), "r"(a[lane + 2]), "r"(a[lane + 3]), "r"(a[lane]),
                 "r"(a[lane]));
  c[lane] = d[0] * c[lane + 1] + d[1] + d[2] + d[3];
}
"""


@pytest.mark.parametrize(("major", "arch"), [(12, "sm_87"), (12, "sm_90"), (13, "sm_110")])
def test_multiply_adds_of_machine_code(major: int, arch: str) -> None:
    (opcodes,) = opcodes_of(Nvrtc(major).compile(_SOURCE, arch).content).values()
    assert opcodes["HMMA.16816.F32"] == 1
    assert multiply_adds(opcodes) == {"tensor": 64, "plain": 1}


def test_widths_of_accesses() -> None:
    opcodes = {"LDG.E.128.CONSTANT": 3, "LDG.E.U16": 2, "STG.E.64": 1, "STG.E": 4, "LDS.128": 9, "FFMA": 7}
    assert widths(opcodes) == {"2": 2, "4": 4, "8": 1, "16": 3}


def test_product_that_is_not_known() -> None:
    with pytest.raises(UserError, match=r"how much HMMA\.884"):
        multiply_adds(Counter({"HMMA.884.F32": 1}))


def test_what_is_no_cubin() -> None:
    with pytest.raises(UserError, match="does not read this cubin"):
        opcodes_of(b"text")


def test_model_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, output = convnet(tmp_path / "model.onnx"), tmp_path / "figures.json"
    command = [str(model), "--target", "jetson_orin_nano", "--dtype", "fp32", "--json", str(output)]
    assert inspect.main(command) == 0
    figures = read_result(output).figures
    assert figures["tensor_core_share_of_others"] == figures["depthwise_share"] == 0
    assert figures["tensor_core_share"] == 0, "single precision has no products on tensor cores"
    assert figures["spill_bytes"] == 0
    products = [entry for entry in figures["kernels"].values() if entry["multiply_adds"]]
    assert products
    for entry in products:
        assert entry["calls"] >= 1
        assert sum(entry["access_bytes"].values()) > 0
        assert entry["instructions"]["FFMA"] > 0
    assert figures["bank_conflicts"] == sum(
        entry["calls"] * entry["bank_conflicts"] for entry in figures["kernels"].values()
    )
    assert "tensor cores 0.0%" in capsys.readouterr().out


def test_board_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(convnet(tmp_path / "model.onnx")), "--target", "raspberry_pi_5"]
    assert inspect.main(command) == 1
    assert "use --processor cpu" in capsys.readouterr().err


def test_several_targets_go_on_where_they_were_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, output = convnet(tmp_path / "model.onnx"), tmp_path / "figures.json"
    command = [str(model), "--dtype", "fp32", "--json", str(output), "--target"]
    compiled = []

    def figures(path: Path, target: str, dtype: str, folder: Path) -> dict[str, object]:
        gpu = inspect.profile_of(target).board.gpu
        assert gpu is not None
        compiled.append(target)
        return {"arch": gpu.arch, "kernels": {"first": {"spill_bytes": 0}, "second": {"spill_bytes": 8}}}

    monkeypatch.setattr(inspect, "entry_of", figures)
    assert inspect.main([*command, "jetson_xavier_nx", "raspberry_pi_5"]) == 1
    before = json.loads(output.read_text())
    cpu, before["machine"]["cpu"] = before["machine"]["cpu"], "Another processor"
    for entry in before["entries"]:
        assert entry.pop("cpu") == cpu
    output.write_text(json.dumps(before))
    assert inspect.main([*command, "jetson_xavier_nx", inspect.SERVER, "raspberry_pi_5"]) == 1
    entries = read_result(output).figures["entries"]
    assert [entry["cpu"] for entry in entries] == ["Another processor", "Another processor", cpu]
    assert [entry.get("arch") for entry in entries] == ["sm_72", None, "sm_90"]
    assert compiled == ["jetson_xavier_nx", inspect.SERVER], "the first target is not compiled again"
    assert "use --processor cpu" in entries[1]["error"]
    assert entries[2]["spilling"] == ["second"]
    # Of one model and target there is another file, with every kernel.
    output.write_text(output.read_text().replace(inspect.SCHEMA_OF_SEVERAL, inspect.SCHEMA))
    assert inspect.main([*command, "jetson_xavier_nx", inspect.SERVER]) == 1
    assert "give --json another name" in capsys.readouterr().err


def test_rows_of_older_programs_are_named() -> None:
    about = {"target": "jetson_orin_nano", "commit": "0123456789abcdef"}
    rows = [
        {"model": "same", **about, "rules": {"cuda_mma": 3, "cuda_windows": 1}},
        {"model": "older", **about, "rules": {"cuda_mma": 2, "cuda_gone": 1}},
        {"model": "unknown", **about},
        {"model": "refused", **about, "error": "no GPU"},
    ]
    assert inspect.older_programs(rows, {"cuda_mma": 3, "cuda_windows": 1}) == [
        "older on jetson_orin_nano: of older programs (cuda_mma 2, now 3, cuda_gone 1, now gone)",
        "unknown on jetson_orin_nano: of commit 0123456789, which did not note versions of rules",
    ]
