from __future__ import annotations

from dataclasses import replace

import pytest
import tvm

from host.build import architecture_of, target_for
from host.errors import BuildError
from targets import Board, MachineDescription, board_for

AVX512 = ("avx2", "fma", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


def board(*features: str) -> Board:
    found = board_for(MachineDescription("x86_64", "test", 2, features, {}, 3e9, 1 << 30))
    assert found is not None
    return found


@pytest.mark.parametrize("features", [(), ("avx2", "fma"), AVX512])
def test_boards_give_targets(features: tuple[str, ...]) -> None:
    target = target_for(board(*features))
    assert architecture_of(target) == "x86_64"
    assert int(target.attrs["num-cores"]) == 2


def test_refused_dictionary_names_the_board() -> None:
    wrong = replace(board(), tvm_target={"kind": "llvm", "no-such-option": 1})
    with pytest.raises(BuildError, match=r"board x86_64.*tvm_target"):
        target_for(wrong)


def test_contradicting_architecture_is_refused() -> None:
    wrong = replace(board(), architecture="aarch64")
    with pytest.raises(BuildError, match="architecture aarch64 but"):
        target_for(wrong)


def test_vectors_that_the_processor_lacks_are_refused() -> None:
    narrow = board()
    wrong = replace(narrow, hardware=replace(narrow.hardware, vector_bits=512))
    with pytest.raises(BuildError, match="vectors of 512 bits, but its target has no avx512f"):
        target_for(wrong)


def test_other_architecture_is_refused() -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "armv7l-linux-gnueabihf"})
    with pytest.raises(BuildError, match=r"armv7l.*not of x86_64, aarch64, riscv64"):
        architecture_of(target)
