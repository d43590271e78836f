"""What an import's worker does: functions that take and return plain data. See `parent`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from host.importers.dispatch import load_here
from host.importers.worker.arrays_file import read_arrays
from host.importers.worker.transfer import pack


def read(
    path: str,
    shapes: dict[str, list[int]],
    seed: int,
    golden_cases: int,
    samples: list[Any] | None,
    half: str,
) -> dict[str, Any]:
    """Import a file.

    Args:
        path: absolute.
        shapes: by input name.
        seed: of the golden inputs.
        golden_cases: number of them.
        samples: lists of arrays in `samples.bin`, one a case.
        half: type of half precision whose spread the golden cases get, "" for none.
    """
    folder = Path.cwd()
    given = None
    if samples is not None:
        given = [read_arrays(folder / "samples.bin", case) for case in samples]
    model = load_here(Path(path), shapes, seed, golden_cases, given)
    if half:
        from host.importers.half_spread import with_half_spread

        model = replace(model, golden=with_half_spread(model, half))
    return pack(model, folder)
