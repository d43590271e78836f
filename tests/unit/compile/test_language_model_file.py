"""What the target's processor has to do with how a language model is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host.compile.device_profile import target_profile
from host.compile.model_file import long_chunk_of, read_model
from host.model import DeviceProfile
from host.options import CompileOptions
from host.progress import Silence, StageClock
from targets import Bfloat16Products, MatrixTiles, MemoryLevel
from tests.unit.importers.decoders.models import llama, llama_weights, write
from tests.unit.importers.decoders.packed.test_folders import Way, made

TILES = MatrixTiles(("amx-tile", "amx-bf16"), ("bf16bf16",))
SLOW = Bfloat16Products("avx512bf16", 0.5, 4.0)
# The second one has 2 MB.
LEVELS = tuple(
    MemoryLevel(name, size, 1e10, 1e-9)
    for name, size in (("L1", 1 << 15), ("L2", 1 << 21), ("L3", 1 << 26), ("DRAM", 0))
)


class Asked(Exception):
    """Ends the import with what it was asked for."""


def profile(bfloat16: Bfloat16Products | None, tiles: MatrixTiles | None = None) -> DeviceProfile:
    """Of this machine, with such products or none, and with such registers of matrices or none."""
    found = target_profile("local", 1)
    hardware = replace(
        found.hardware, bfloat16=bfloat16, matrix_tiles=tiles, fma_per_cycle=1.0, levels=LEVELS
    )
    return replace(found, hardware=hardware)


@pytest.mark.parametrize(
    ("per_cycle", "tiles", "asked"),
    [(1.0, None, True), (0.5, None, False), (None, None, False), (0.5, TILES, True), (None, TILES, False)],
)
def test_attention_is_rounded_for_processors_that_gain_by_it(
    per_cycle: float | None,
    tiles: MatrixTiles | None,
    asked: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = None if per_cycle is None else Bfloat16Products("avx512bf16", per_cycle, 4.0)
    folder = write(tmp_path / "model", llama(), llama_weights())

    def import_decoder(*given: Any, long_chunk: int) -> None:
        raise Asked(given[-3])

    monkeypatch.setattr("host.importers.decoders.importer.import_decoder", import_decoder)
    options, clock = CompileOptions(model=folder, quantize="int4"), StageClock(Silence())
    with pytest.raises(Asked, match=str(asked)):
        read_model(options, clock, profile=profile(products, tiles))
    with pytest.raises(Asked, match="False"):
        read_model(options, clock)


@pytest.mark.parametrize(
    ("quantize", "packed", "tiles", "context", "chunk", "in_tiles"),
    [
        ("int4", False, TILES, 512, 128, True),
        ("int4", False, TILES, 1024, 128, True),
        ("", True, TILES, 2048, 128, True),
        ("int4", False, None, 1024, 64, False),
        ("", False, TILES, 1024, 64, False),
        ("", True, TILES, 512, 128, True),
        # A prompt behind the last whole chunk goes through steps, which would be much of a short context.
        ("int4", False, TILES, 256, 64, True),
        ("int4", False, TILES, 48, 48, True),
        # Tiles multiply 32 rows or more.
        ("int4", False, TILES, 16, 16, False),
        ("int4", False, None, 512, 64, False),
        ("", False, TILES, 512, 64, False),
    ],
)
def test_chunks_are_longer_where_tiles_multiply_quantised_weights(
    quantize: str,
    packed: bool,
    tiles: MatrixTiles | None,
    context: int,
    chunk: int,
    in_tiles: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "model"
    if packed:
        made(folder, Way("gptq"))
    else:
        write(folder, llama(), llama_weights())

    def import_decoder(*given: Any, long_chunk: int) -> None:
        raise Asked((*given[1:3], given[-2], long_chunk))

    monkeypatch.setattr("host.importers.decoders.importer.import_decoder", import_decoder)
    options = CompileOptions(model=folder, quantize=quantize, context_tokens=context)
    with pytest.raises(Asked) as asked:
        read_model(options, StageClock(Silence()), profile=profile(SLOW, tiles))
    long_chunk = 256 if chunk == 128 and context >= 1024 else 0
    assert asked.value.args == ((context, chunk, in_tiles, long_chunk),)


def test_a_second_prefill_is_for_long_contexts_whose_rows_the_second_cache_level_holds() -> None:
    assert [long_chunk_of(context, 1024, LEVELS) for context in (512, 1008, 1024, 8192)] == [0, 0, 256, 256]
    # Rows of 2048 elements take half of it.
    assert [long_chunk_of(2048, hidden, LEVELS) for hidden in (64, 2048, 2064, 8192)] == [256, 256, 0, 0]
    assert long_chunk_of(2048, 64, LEVELS[2:]) == 0
