"""What an import's worker does: functions that take and return plain data. See `parent`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from host.errors import ModelFileError
from host.importers.dispatch import load_here
from host.importers.worker.arrays_file import read_arrays
from host.importers.worker.transfer import pack, pack_module
from host.model import Signature


def read(
    path: str,
    shapes: dict[str, list[int]],
    seed: int,
    golden_cases: int,
    samples: list[Any] | None,
    half: str,
    values: dict[str, list[float]] | None = None,
) -> dict[str, Any]:
    """Import a file.

    Args:
        path: absolute.
        shapes: by input name.
        seed: of the golden inputs.
        golden_cases: number of them.
        samples: lists of arrays in `samples.bin`, one a case.
        half: type of half precision whose spread the golden cases get, "" for none.
        values: numbers of inputs that are fixed, by name.

    Raises:
        ModelFileError: the file cannot be read, or an input is empty and so is all that is made of it.
    """
    folder = Path.cwd()
    given = None
    if samples is not None:
        given = [read_arrays(folder / "samples.bin", case) for case in samples]
    written: list[tuple[Any, dict[str, Any]]] = []

    def write(module: Any) -> None:
        written.append((module, pack_module(module, folder)))

    model = load_here(Path(path), shapes, seed, golden_cases, given, values=values, meanwhile=write)
    _check_not_empty(Path(path), model.signature)
    if half:
        from host.importers.half_spread import with_half_spread

        model = replace(model, golden=with_half_spread(model, half))
    return pack(model, folder, written)


def _check_not_empty(path: Path, signature: Signature) -> None:
    """Refuse a model that has nothing to compute or to verify, because an input has no elements.

    A sum of nothing is a number: a model with an empty input is like any other if it makes an output of it.
    """
    empty = next((spec for spec in signature.inputs if 0 in spec.shape), None)
    if empty is not None and all(0 in spec.shape for spec in signature.outputs):
        sizes = " x ".join(map(str, empty.shape))
        raise ModelFileError(
            f"{path.name}: input {empty.name!r} is empty ({sizes}), and so is every output: export the model "
            "with sizes of real inputs"
        )
