"""The three operations of decoders in numpy, as packed functions of TVM, and a way to run their modules.

`register()` makes the names known to TVM's virtual machine. The products do not round their rows to 8 bits,
as the compiler's kernels may: what they give is that of the dequantised weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

BLOCK = 16


def cached_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    position: np.ndarray,
    *kept: Any,
) -> np.ndarray:
    """Query (T, Hq, D), key and value (T, Hkv, D); the caches (Hkv, C/16, D, 16), (Hkv, C, D) are changed.

    Before caches of bytes are their scales (Hkv, C/16, 16). Behind the caches are the options.
    """
    *scales, key_cache, value_cache, options = kept
    rows, heads, _ = query.shape
    group = heads // key.shape[1]
    result = np.empty_like(query)
    for row in range(rows):
        place = int(position[0]) + row
        given = [key[row], value[row]]
        for index, scale in enumerate(scales):
            found = (np.abs(given[index]).max(axis=-1) / np.float32(127)).astype(np.float16)
            scale[:, place // BLOCK, place % BLOCK] = found
            given[index] = np.rint(given[index] * (1 / found.astype(np.float32)[:, None]))
        key_cache[:, place // BLOCK, :, place % BLOCK] = given[0]
        value_cache[:, place, :] = given[1]
    for row in range(rows):
        place = int(position[0]) + row
        first = max(0, place - options["window"] + 1) if options["window"] else 0
        seen = np.arange(first, place + 1)
        for head in range(heads):
            keys = key_cache[head // group, seen // BLOCK, :, seen % BLOCK]
            values = value_cache[head // group, seen]
            if scales:
                of_keys, of_values = (
                    one[head // group, seen // BLOCK, seen % BLOCK].astype(np.float32)[:, None]
                    for one in scales
                )
                keys, values = keys * of_keys, values * of_values
            scores = keys @ query[row, head] * options["scale"]
            if options["cap"]:
                scores = np.tanh(scores / options["cap"]) * options["cap"]
            shares = np.exp(scores - scores.max())
            result[row, head] = shares / shares.sum() @ values
    return result


def dequantised(arrays: Sequence[np.ndarray], options: dict[str, Any]) -> np.ndarray:
    """The values (N, K) of a quantised weight, written apart from the product's own function.

    Args:
        arrays: the weight, scales, multipliers, zero points or minima, and multipliers of the minima; those
            that there are.
        options: of the call.
    """
    weight, *others = arrays
    asymmetry, multiplied = options.get("asymmetry", ""), options.get("multiplied", False)
    if options["bits"] == 8:
        numbers = weight.astype(np.float32)
    else:
        numbers = np.stack([weight & 15, weight >> 4], axis=-1).reshape(len(weight), -1).astype(np.float32)
        numbers -= 0 if asymmetry else 8
    # One of each for every element.
    each = [
        one.astype(np.float32).repeat(numbers.shape[1] // one.shape[1], axis=1)  # blocks or groups
        for one in others
    ]
    scale = each.pop(0)
    if multiplied:
        scale = scale * each.pop(0)
    if asymmetry == "zero":
        return (numbers - each.pop(0)) * scale
    if asymmetry == "minimum":
        return numbers * scale + (each[0] * each[1] if multiplied else each[0])
    return numbers * scale


def quantised_dense(rows: np.ndarray, *weight: Any) -> np.ndarray:
    """Rows (T, K) by a quantised weight: (T, N)."""
    *arrays, options = weight
    return rows @ dequantised(arrays, options).T


def quantised_rows(tokens: np.ndarray, *weight: Any) -> np.ndarray:
    """Rows (T, K) of a quantised embedding."""
    *arrays, options = weight
    return dequantised([one[tokens] for one in arrays], options)


def register() -> None:
    """Make the operations known to the virtual machine by their names."""
    for function in (cached_attention, quantised_dense, quantised_rows):
        tvm.register_global_func(f"edgetlm.{function.__name__}", _packed(function), override=True)


def _packed(function: Any) -> Any:
    def call(*arguments: Any) -> None:
        *tensors, text, output = arguments
        # Memory is shared, so that caches are changed in place.
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        options, made = json.loads(str(text)), np.from_dlpack(output)
        # A product may give the outputs from one on.
        first = options.get("first", 0)
        made[...] = function(*arrays, options)[..., first : first + made.shape[-1]]

    return call


class Machine:
    """A module with state on TVM's virtual machine.

    Args:
        module: a `main` that takes inputs and then the state.
        state: of `empty_state`, kept between calls; given, so that two modules can share it.
    """

    def __init__(self, module: tvm.IRModule, state: Sequence[tvm.runtime.Tensor]) -> None:
        register()
        # Hardly optimised: compiling takes longer than the few runs.
        executable = tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "opt-level": 0}))
        self._main = relax.VirtualMachine(executable, tvm.cpu())["main"]
        self._state = list(state)

    def run(self, *inputs: np.ndarray) -> np.ndarray:
        """The output for one set of inputs; the state is changed."""
        given = [tvm.runtime.tensor(np.asarray(one, np.int32)) for one in inputs]
        return self._main(*given, *self._state).numpy()


def empty_state(specs: Sequence[Any]) -> list[tvm.runtime.Tensor]:
    """Zeros for the state of a model."""
    return [tvm.runtime.tensor(np.zeros(spec.shape, spec.dtype)) for spec in specs]
