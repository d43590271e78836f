"""Boards to train on: the declared boards with varied figures, because no two units are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from targets import Board, GpuModel, HardwareModel, MachineDescription, MemoryLevel, board_for, declared
from targets.nvidia import H100

# The figures of a drawn board are at most this factor above or below the declared ones.
_SPREAD = 1.6


# Features of newer x86 processors, which multiply bytes and pairs of bfloat16 numbers. The declared boards
# have none of them.
_DOT_PRODUCTS = ("avx512_vnni", "avx_vnni", "avx512_bf16")


def board_of(name: str, gpu: bool = False) -> Board:
    """The declared board with this name, or its GPU."""
    board = board_for(declared()[name])
    assert board is not None, f"{name} is declared without a target to compile for"
    return board.on_gpu() if gpu else board


def training_boards() -> tuple[Board, ...]:
    """All declared boards, their GPUs, the x86 boards once more with dot products, and a PC with a GPU."""
    boards = [replace(board_of("x86_64-v3"), gpu=H100).on_gpu()]
    for description in _machines():
        board = board_for(description)
        if board is not None:
            boards.append(board)
            if board.gpu is not None:
                boards.append(board.on_gpu())
    return tuple(boards)


def _machines() -> Iterator[MachineDescription]:
    for description in declared().values():
        yield description
        newer = replace(description, features=(*description.features, *_DOT_PRODUCTS))
        board = board_for(newer)
        if board is not None and board.architecture == "x86_64" and board.hardware.dot_product:
            yield newer


def draw_board(boards: tuple[Board, ...], generator: random.Random) -> tuple[Board, int]:
    """A board with figures drawn around those of a declared one, and a number of threads for its programs."""
    board = generator.choice(boards)
    hardware = _varied(board.hardware, generator)
    threads = 1 if hardware.gpu is not None else _threads(hardware.cores, generator)
    return replace(board, hardware=hardware), threads


def _threads(cores: int, generator: random.Random) -> int:
    """The number of threads of a program: mostly one, two or all cores, sometimes any number of cores."""
    return generator.choice((1, 1, min(2, cores), cores, generator.randint(1, cores)))


def _varied(hardware: HardwareModel, generator: random.Random) -> HardwareModel:
    if hardware.gpu is not None:
        return replace(hardware, gpu=_varied_gpu(hardware.gpu, generator))
    speed = _factor(generator)
    return replace(
        hardware,
        frequency_hz=hardware.frequency_hz * speed,
        peak_flops=hardware.peak_flops * speed * generator.uniform(0.85, 1.0),
        levels=_varied_levels(hardware.levels, generator),
        parallel_launch_s=hardware.parallel_launch_s * _factor(generator),
    )


def _varied_gpu(gpu: GpuModel, generator: random.Random) -> GpuModel:
    return replace(
        gpu,
        multiprocessors=max(1, round(gpu.multiprocessors * _factor(generator))),
        frequency_hz=gpu.frequency_hz * _factor(generator),
        levels=_varied_levels(gpu.levels, generator),
        launch_s=gpu.launch_s * _factor(generator),
    )


def _varied_levels(levels: tuple[MemoryLevel, ...], generator: random.Random) -> tuple[MemoryLevel, ...]:
    """Memory levels with varied bandwidths and cache sizes; no level is smaller than the one before it."""
    varied = []
    largest = 0
    for level in levels:
        factor = generator.choice((0.5, 1.0, 1.0, 1.0, 2.0))
        size = max(int(level.size_bytes * factor), largest) if level.size_bytes else 0
        largest = max(largest, size)
        bandwidth = level.bandwidth_bytes_per_s * _factor(generator)
        varied.append(replace(level, size_bytes=size, bandwidth_bytes_per_s=bandwidth))
    return tuple(varied)


def _factor(generator: random.Random) -> float:
    return float(_SPREAD ** generator.uniform(-1.0, 1.0))
