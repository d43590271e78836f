"""A torch module, or a model of the Hugging Face hub, as a file or folder for the time of one call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from device_agent.contract.manifest import as_name
from host.devices import notes
from host.errors import UserError
from host.model_file.hub import HubModel, download, hub_model
from host.options import CompileOptions

Options = TypeVar("Options", bound=CompileOptions)
_EXAMPLE = "as in example_inputs=torch.zeros(1, 3, 224, 224)"


@contextmanager
def exported(module: Any, example_inputs: tuple[Any, ...], name: str) -> Iterator[Path]:
    """Export `module` to a `.pt2` file that is gone afterwards; its mode, training or not, is kept.

    Raises:
        UserError: not a torch module, or no example inputs that are tensors.
        ImportFailed: torch cannot export it.
    """
    import torch

    from host.importers.torch.importer import export_module

    kind = type(module).__name__
    if isinstance(module, Mapping):
        raise UserError(
            f"a {kind} holds weights, not the model: load them with model.load_state_dict, and give the model"
        )
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"an object of {kind} is no model: give a path or a torch.nn.Module")
    if not example_inputs:
        raise UserError(f"a torch module needs example_inputs: a tensor for each input, {_EXAMPLE}")
    for one in example_inputs:
        if not isinstance(one, torch.Tensor | list | tuple | bool | int | float | None):
            raise UserError(
                f"example_inputs holds an object of {type(one).__name__}: give tensors in the order of the "
                f"inputs, {_EXAMPLE}"
            )
    modes = {part: part.training for part in module.modules()}
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        path = Path(folder) / f"{name}.pt2"
        try:
            export_module(module.eval(), example_inputs, path)
        finally:
            for part, training in modes.items():
                part.training = training
        yield path


def as_file(model: Any, example_inputs: Any, name: str) -> AbstractContextManager[Path]:
    """A context in which a model is a file: its own, what a torch module is exported to, or a download.

    Args:
        model: a path, a name such as `hf://ORG/MODEL`, or a torch module.
        example_inputs: tensors for a torch module, or the tensor of its only input.
        name: of the model; the module's class if "".

    Raises:
        UserError: a file with example inputs, or neither a file nor a module.
    """
    if isinstance(model, str | Path):
        wanted = hub_model(str(model))
        if wanted is not None:
            return _downloaded(wanted)
        if not isinstance(example_inputs, Sequence) or example_inputs:
            raise UserError("example_inputs go with a torch module, not with a file; use shapes")
        return nullcontext(Path(model))
    # A tensor can be iterated over too, but means one input.
    given = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)
    return exported(model, given, name or type(model).__name__.lower())


def named(options: Options, model: Any) -> Options:
    """The options with a name for a model of the hub, whose folder here is named after its commit.

    Raises:
        UserError: the text names no model.
    """
    wanted = hub_model(str(model)) if isinstance(model, str | Path) else None
    if wanted is None or options.name:
        return options
    return replace(options, name=as_name(Path(wanted.path).stem if wanted.path else wanted.name))


@contextmanager
def _downloaded(wanted: HubModel) -> Iterator[Path]:

    yield download(wanted, notes.note)
