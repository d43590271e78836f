"""Convolutions by Winograd's algorithm on emulated boards against sums in float64."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from host.gensor import Gensor
from host.model import Candidate, DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import Board
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.unit.lowering.harness import normal, weight
from tests.unit.schedules.cpu.winograd_cases import convolution

# NEON, RVV of at least 128 bits (run with 128 and with 256), and by hand RVV of 256 bits.
BOARDS = ("raspberry_pi_4", "rv64gcv", pytest.param("spacemit_k1", marks=pytest.mark.long))
# Tiles of both sizes overlap the border; two images, 24 channels from 10: no power of two.
IMAGE, CHANNELS, PADDING = (2, 7, 9, 10), 24, (1, 1, 1, 1)


def _expected(image: np.ndarray) -> np.ndarray:
    """Convolution, bias and ReLU of `convolution`, in float64."""
    padded = np.pad(image.astype("float64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    taps = weight(CHANNELS, IMAGE[-1], 3, 3).value.numpy().astype("float64")
    summed = np.einsum("nhwcyx,ocyx->nhwo", windows, taps) + weight(CHANNELS, seed=3).value.numpy()
    return np.maximum(summed, 0.0)


def _candidates(space: DesignSpace, name: str, board: Board) -> dict[str, Candidate]:
    """Gensor's proposal, and a random program that reads the padded input in the other way."""
    (proposed,) = Gensor().propose(space, DeviceProfile(name, board, board.hardware, 1), (), 1, seed=0)
    generator = random.Random(1)
    values = space.sample(generator)
    while values["pad"] == dict(proposed.decisions)["pad"]:
        values = space.sample(generator)
    return {"gensor": proposed, "random": space.candidate(values, "random")}


@pytest.mark.parametrize("name", BOARDS)
def test_programs_are_right_on_emulated_boards(name: str, tmp_path: Path) -> None:
    board = board_of(name)
    image = normal(*IMAGE)
    expected = _expected(image)
    functions, calls = {}, []
    for outputs in (2, 4):
        task, weights = convolution(board, IMAGE, CHANNELS, PADDING, outputs)
        space = space_for(task, board.hardware, 1)
        assert space.rule.name == "winograd"
        for label, candidate in _candidates(space, name, board).items():
            kernel = f"F({outputs}x{outputs}) {label}"
            functions[kernel] = scheduled_function(space.apply(candidate))
            calls.append(Call(kernel, (image, *weights, np.zeros(expected.shape, "float32"))))
    program = executable(board, functions, tmp_path)
    for processor in PROCESSORS[name]:
        found = run(program, list(functions), calls, board.architecture, processor)
        for call, values in zip(calls, found, strict=True):
            message = f"{call.kernel} on {processor}"
            np.testing.assert_allclose(values[-1], expected, rtol=2e-5, atol=2e-5, err_msg=message)
