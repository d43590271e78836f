"""A model of transformers whose weights are in memory only while a module that has them computes.

The modules are those of transformers, made on torch's meta device, which has shapes and no values. Before a
module is called its parameters are read, and behind the call they are gone. A table of an embedding is read
by the rows that are looked up, and a large matrix of a linear module is multiplied by blocks of its rows,
where the file lets them be read without the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from host.importers.decoders.folder import ModelFolder
from host.importers.decoders.reference.stored import Halves, Stored

if TYPE_CHECKING:
    import torch

# Elements of a linear module's weight that are in memory at a time.
_BLOCK = 1 << 22
# Attributes of a linear module whose weight is never in memory as a whole.
_BLOCKS, _BIAS = "edgetlm_blocks", "edgetlm_bias"


def make_model(read: ModelFolder, parts: Mapping[str, Stored], *, halves: bool = False, kept: int = 0) -> Any:
    """The model of transformers of a configuration, with weights that are read when they are needed.

    Args:
        read: the folder or file.
        parts: weights that replace those of the files, by their names there.
        halves: whether matrices of the files are rounded to half precision.
        kept: bytes of weights that stay in memory once they are read, those of the first modules.

    Raises:
        ValueError: transformers does not know the model, or has not the same weights.
    """
    import torch

    model = _empty(read)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    files = {name: Halves(one) if halves else one for name, one in read.weights.items()}
    found = _assigned(parameters, (parts, files), exact=read.exact)
    for path, module in model.named_modules():
        names = [name for name, _ in module.named_parameters(recurse=False)]
        own = {name: found[f"{path}.{name}" if path else name] for name in names}
        if isinstance(module, torch.nn.Embedding):
            _by_tokens(module, *own["weight"])
            continue
        size = 4 * sum(module._parameters[name].numel() for name in names)
        stays = size <= kept
        kept -= size if stays else 0
        linear = type(module) is torch.nn.Linear and module.weight.numel() > _BLOCK
        if linear and not stays and own["weight"][1].has_rows:
            _by_blocks(module, own)
        elif own:
            _when_called(module, own, stays=stays)
    return model


def weight_blocks(module: Any) -> Iterator[tuple[slice, torch.Tensor]]:
    """The weight (N, K) that a module multiplies by, inside of its call: outputs, and their rows of it."""
    import torch

    blocks = getattr(module, _BLOCKS, None)
    if blocks is not None:
        yield from blocks()
        return
    # Other modules that multiply (GPT-2's) have it transposed.
    weight = module.weight if isinstance(module, torch.nn.Linear) else module.weight.T
    yield slice(0, weight.shape[0]), weight


def bias_of(module: Any) -> torch.Tensor | None:
    """The bias (N) of a module that multiplies, inside of its call; None without."""
    made: torch.Tensor | None = getattr(module, _BIAS, None)
    return module.bias if made is None else made


def parameters_named(parameters: Mapping[str, Any], name: str) -> list[str]:
    """The names of parameters of a model that a name of a file can mean."""
    return [key for key in parameters if key == name or key.endswith(f".{name}")]


def parameter_named(parameters: Mapping[str, Any], name: str) -> str:
    """The one name of a parameter of a model that a name of a file means.

    Raises:
        ValueError: there is none, or there are several.
    """
    found = parameters_named(parameters, name)
    if len(found) != 1:
        raise ValueError(f"{len(found)} parameters are called {name!r}")
    return found[0]


def _empty(read: ModelFolder) -> Any:
    """The model without values of its parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if Path(read.path).is_dir() and not read.bits:
        config = AutoConfig.from_pretrained(str(read.path), local_files_only=True, trust_remote_code=False)
    else:
        # Of a GGUF file, or of packed weights, which transformers would want to read by itself.
        config = AutoConfig.for_model(**read.config.values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
        ).eval()
    for module in model.modules():
        buffers = dict(module.named_buffers(recurse=False))
        for name, buffer in buffers.items():
            # What is not initialised below is seen in the logits, in place of what lay in memory.
            nothing = math.nan if buffer.is_floating_point() else 0
            setattr(module, name, torch.full_like(buffer, nothing, device="cpu"))
        if buffers:
            # As `from_pretrained` does with buffers that no file has, such as a rotation's frequencies.
            model._init_weights(module)
    return model


def _assigned(
    parameters: Mapping[str, Any], sources: Sequence[Mapping[str, Stored]], *, exact: bool
) -> dict[str, tuple[str, Stored]]:
    """The weight of each parameter, and its name in the files, which may lack the name of the model's body.

    Tied parameters are one object. Of the first source that has either, each gets the weight of its own name,
    and where there is none that of the other name.
    """
    found: dict[str, tuple[str, Stored]] = {}
    for weights in sources:
        own: dict[str, tuple[str, Stored]] = {}
        for name, weight in weights.items():
            if not (exact or parameters_named(parameters, name)):
                # As transformers does with weights of a folder that a model does not have.
                continue
            key = parameter_named(parameters, name)
            if tuple(parameters[key].shape) != tuple(weight.shape):
                raise ValueError(f"{name!r} has another shape")
            own[key] = (name, weight)
        shared = {id(parameters[key]): one for key, one in own.items()}
        for key, parameter in parameters.items():
            one = own.get(key) or shared.get(id(parameter))
            if one is not None:
                found.setdefault(key, one)
    missing = [key for key in parameters if key not in found]
    if missing:
        raise ValueError(f"the file has no {missing[0]!r}")
    return found


def _tensor(values: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(values))


def _when_called(module: Any, own: Mapping[str, tuple[str, Stored]], *, stays: bool) -> None:
    """Read all parameters of a module before it is called, and drop them behind the call or not."""
    import torch

    empty = dict(module._parameters)

    def fill(_: Any, given: Any) -> None:
        for name, (stored, weight) in own.items():
            if module._parameters[name] is empty[name]:
                values = _tensor(weight.read(stored))
                module._parameters[name] = torch.nn.Parameter(values, requires_grad=False)

    def drop(_: Any, given: Any, made: Any) -> None:
        module._parameters.update(empty)

    module.register_forward_pre_hook(fill)
    if not stays:
        module.register_forward_hook(drop)


def _by_tokens(module: Any, stored: str, weight: Stored) -> None:
    """Have an embedding read the rows of the tokens that it is given."""
    import torch

    empty = module._parameters["weight"]
    # Means something in training alone, and would have to be a row.
    module.padding_idx = None

    def fill(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens, places = torch.unique(given[0], return_inverse=True)
        if weight.has_rows:
            rows = [weight.rows(stored, token, token + 1) for token in tokens.tolist()]
            values = _tensor(np.concatenate(rows))
        else:
            values = _tensor(weight.read(stored)[tokens.numpy()])
        module._parameters["weight"] = torch.nn.Parameter(values, requires_grad=False)
        return (places, *given[1:])

    def drop(_: Any, given: Any, made: Any) -> None:
        module._parameters["weight"] = empty

    module.register_forward_pre_hook(fill)
    module.register_forward_hook(drop)


def _by_blocks(module: Any, own: Mapping[str, tuple[str, Stored]]) -> None:
    """Have a linear module multiply by blocks of its rows."""
    import torch

    stored, weight = own["weight"]
    rows, columns = weight.shape
    bias = _tensor(own["bias"][1].read(own["bias"][0])) if "bias" in own else None

    def blocks() -> Iterator[tuple[slice, torch.Tensor]]:
        step = max(_BLOCK // columns, 1)
        for begin in range(0, rows, step):
            end = min(begin + step, rows)
            yield slice(begin, end), _tensor(weight.rows(stored, begin, end))

    def forward(given: torch.Tensor) -> torch.Tensor:
        made = given.new_empty(*given.shape[:-1], rows)
        for part, values in blocks():
            some = None if bias is None else bias[part]
            made[..., part] = torch.nn.functional.linear(given, values, some)
        return made

    setattr(module, _BLOCKS, blocks)
    setattr(module, _BIAS, bias)
    module.forward = forward
