"""One matrix of a GPTQ or AWQ folder, in the form that a folder in floating point has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.decoders.packed.layout import GPTQ, PackedLayout
from host.importers.decoders.quantise import GROUP, ZERO, Form, Quantised, dequantise, in_order
from host.importers.decoders.safetensors_file import StoredTensor

_WEIGHT = "weight"
_PARTS = ("qweight", "qzeros", "scales")
_GROUPS = "g_idx"


@dataclass(frozen=True)
class PackedTensor(StoredTensor):
    """Where the parts of a matrix lie; `shape` is (N, K), and the bytes are those of its numbers.

    Attributes:
        layout: of the folder.
        zeros, scales: the parts.
        groups: the group of each input; None where the folder has none.
    """

    layout: PackedLayout
    zeros: StoredTensor
    scales: StoredTensor
    groups: StoredTensor | None

    @cached_property
    def order(self) -> np.ndarray | None:
        """The inputs by their groups, where a folder has these in another order (GPTQ's `desc_act`).

        Raises:
            ModelFileError: the groups have not as many inputs each as a group has.
            OSError: a file cannot be read.
        """
        if self.groups is None:
            return None
        found = _array(self.groups, np.dtype(np.int32))
        wanted = np.arange(len(found), dtype=np.int32) // self.form.block
        if np.array_equal(found, wanted):
            return None
        order = np.argsort(found, kind="stable").astype(np.int32)
        if not np.array_equal(found[order], wanted):
            raise ModelFileError(
                f"{self.groups.path.name}: g_idx does not give each group {self.form.block} inputs: "
                "download the folder again"
            )
        return order

    @cached_property
    def form(self) -> Form:
        """The bits and groups of the files; symmetric where all zero points are in the middle."""
        columns, bits = self.shape[1], self.layout.bits
        symmetric = bool((self._zeros() == 1 << bits - 1).all())
        return Form(bits, block=columns // self.layout.groups(columns), asymmetry="" if symmetric else ZERO)

    @property
    def has_rows(self) -> bool:
        """See `StoredTensor.has_rows`."""
        return False

    def read(self, name: str) -> np.ndarray:
        """The values as float32; see `StoredTensor.read`."""
        return in_order(dequantise(self.quantised(name, self.form)), self.order)

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows of the values as float32; see `StoredTensor.rows`."""
        return self.read(name)[begin:end]

    def quantised(self, name: str, form: Form, importance: np.ndarray | None = None) -> Quantised:
        """The values in the form of the files, none changed, and the inputs of a group side by side.

        Raises:
            ModelFileError: scales are not finite, or groups are not whole.
            OSError: a file cannot be read.
        """
        # What is asked for is not looked at.
        form, order = self.form, self.order
        scales = _array(self.scales, np.dtype(np.float16))
        if not np.isfinite(scales).all():
            raise self._error(name, "holds NaN or infinity")
        numbers = self.layout.numbers(_array(self._numbers, np.dtype(np.int32)))
        numbers = numbers if order is None else numbers[:, order]
        # Numbers of 8 bits are here around 0.
        less = 128 if form.bits == 8 else 0
        if less:
            weight = (numbers ^ np.uint8(less)).view(np.int8)
        else:
            weight = numbers[:, 0::2] | numbers[:, 1::2] << 4
        zeros = (self._zeros() - less).astype(np.int8) if form.asymmetry else None
        return Quantised(form, weight, np.ascontiguousarray(scales.T), zeros=zeros)

    @property
    def _numbers(self) -> StoredTensor:
        rows, columns = self.shape
        elements = self.layout.elements
        first = self.layout.method == GPTQ
        shape = (columns // elements, rows) if first else (columns, rows // elements)
        return StoredTensor(self.path, self.dtype, shape, self.begin, self.end)

    def _zeros(self) -> np.ndarray:
        zeros = self.layout.zeros(_array(self.zeros, np.dtype(np.int32)))
        if self.layout.less and int(zeros.max()) > (1 << self.layout.bits) - 1:
            raise ModelFileError(
                f"{self.zeros.path.name}: a zero point of GPTQ's first format is 0 or beyond its bits, which "
                "programs read in different ways: quantise the model to checkpoint_format gptq_v2"
            )
        return zeros

    def _error(self, name: str, what: str) -> ModelFileError:
        return ModelFileError(
            f"{self.path.name}: weight {printable(name, 100)!r} {what}: give the model as it was before "
            "it was quantised"
        )


def packed_tensors(
    folder: Path, layout: PackedLayout, tensors: Mapping[str, StoredTensor]
) -> dict[str, StoredTensor]:
    """The weights by the names that they have in floating point.

    Args:
        folder: for messages.
        layout: of the folder.
        tensors: as the files name them.

    Raises:
        ModelFileError: a part is missing, or the parts of a matrix do not fit each other.
    """
    names = [name.removesuffix(_PARTS[0]) for name in tensors if name.endswith(f".{_PARTS[0]}")]
    if not names:
        raise ModelFileError(
            f"{folder}: the configuration says {layout.method}, and no weight is packed: give the "
            "configuration that belongs to the weights"
        )
    parts = {f"{name}{part}" for name in names for part in (*_PARTS, _GROUPS)}
    found = {name: tensor for name, tensor in tensors.items() if name not in parts}
    for name in names:
        found[name + _WEIGHT] = _packed(folder, layout, name, tensors)
    return found


def _packed(
    folder: Path, layout: PackedLayout, name: str, tensors: Mapping[str, StoredTensor]
) -> PackedTensor:
    def fail(text: str, advice: str = "download the folder again") -> ModelFileError:
        return ModelFileError(f"{folder}: {printable(name.removesuffix('.'), 100)}: {text}: {advice}")

    missing = [part for part in _PARTS if name + part not in tensors]
    if missing:
        raise fail(f"{missing[0]} is missing")
    weight, zeros, scales = (tensors[name + part] for part in _PARTS)
    given = tensors.get(name + _GROUPS) if layout.method == GPTQ else None
    if len(weight.shape) != 2:
        raise fail("qweight is no matrix")
    elements, first = layout.elements, layout.method == GPTQ
    rows = weight.shape[1] * (1 if first else elements)
    columns = weight.shape[0] * (elements if first else 1)
    groups = layout.groups(columns)
    whole = bool(groups) and columns % groups == 0 and columns // groups % GROUP == 0
    if not rows or rows % elements or not whole or (layout.group and columns != groups * layout.group):
        inputs = layout.group or "all"
        raise fail(
            f"qweight {list(weight.shape)} is not of whole groups of {inputs} inputs",
            "give the config.json, with the group_size, that belongs to the weights",
        )
    expected = [
        (_PARTS[0], weight, "I32", weight.shape),
        (_PARTS[1], zeros, "I32", (groups, rows // elements)),
        (_PARTS[2], scales, "F16", (groups, rows)),
        *([(_GROUPS, given, "I32", (columns,))] if given is not None else []),
    ]
    for part, tensor, dtype, shape in expected:
        held = math.prod(shape) * (4 if dtype == "I32" else 2)
        if (tensor.dtype, tensor.shape, tensor.end - tensor.begin) != (dtype, shape, held):
            raise fail(
                f"{part} is {printable(tensor.dtype, 20)} {list(tensor.shape)}, not {dtype} {list(shape)}"
            )
    place = (weight.path, weight.dtype, (rows, columns), weight.begin, weight.end)
    return PackedTensor(*place, layout, zeros, scales, given)


def _array(tensor: StoredTensor, dtype: np.dtype) -> np.ndarray:
    """The bytes of a part, whose sizes have been checked."""
    count = math.prod(tensor.shape)
    found = np.fromfile(tensor.path, dtype, count, offset=tensor.begin)
    if len(found) != count:
        raise ModelFileError(f"{tensor.path.name}: the file became shorter: download it again")
    return found.reshape(tensor.shape)
