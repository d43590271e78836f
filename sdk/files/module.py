"""A torch module as a file, for the time of one call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from host.errors import UserError


@contextmanager
def exported(module: Any, example_inputs: tuple[Any, ...], name: str) -> Iterator[Path]:
    """Export `module` to a `.pt2` file that is gone afterwards.

    Raises:
        UserError: not a torch module, or no example inputs.
        ImportFailed: torch cannot export it.
    """
    import torch

    from host.importers.torch.importer import export_module

    if not isinstance(module, torch.nn.Module):
        raise UserError(f"a {type(module).__name__} is no model: give a path or a torch.nn.Module")
    if not example_inputs:
        raise UserError("a torch module needs example_inputs: a tensor for each input")
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        path = Path(folder) / f"{name}.pt2"
        export_module(module.eval(), example_inputs, path)
        yield path


def as_file(model: Any, example_inputs: Any, name: str) -> AbstractContextManager[Path]:
    """A context in which a model is a file: its own, or what a torch module is exported to.

    Args:
        model: a path or a torch module.
        example_inputs: tensors for a torch module, or the tensor of its only input.
        name: of the model; the module's class if "".

    Raises:
        UserError: a file with example inputs, or neither a file nor a module.
    """
    if isinstance(model, str | Path):
        if not isinstance(example_inputs, Sequence) or example_inputs:
            raise UserError("example_inputs go with a torch module, not with a file; use shapes")
        return nullcontext(Path(model))
    # A tensor can be iterated over too, but means one input.
    given = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)
    return exported(model, given, name or type(model).__name__.lower())
