"""The inputs and outputs of a model, as the manifest of a bundle describes them."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from device_agent.contract.manifest import LONG_PREFILL, PREFILL, TOGETHER, VERIFY


class TensorInfo(NamedTuple):
    """Name, shape and element type of an input or output, and the axes whose size is the length."""

    name: str
    shape: Tuple[int, ...]
    dtype: str
    open: Tuple[int, ...] = ()

    def shape_at(self, length: int) -> Tuple[int, ...]:
        """The shape of the tensor at one length."""
        return tuple(length if axis in self.open else size for axis, size in enumerate(self.shape))


class LengthRange(NamedTuple):
    """The smallest and the largest size of a bundle's open dimension, both inclusive."""

    name: str
    low: int
    high: int


class Signature(NamedTuple):
    """The inputs and outputs of a model, in order."""

    inputs: Tuple[TensorInfo, ...]
    outputs: Tuple[TensorInfo, ...]
    length: Optional[LengthRange] = None

    def length_of(self, given: Sequence[Tuple[Sequence[int], str]]) -> int:
        """The length of one set of inputs; 0 if the model has no open dimension.

        Args:
            given: shape and element type of each input, in order.

        Raises:
            ValueError: an input does not fit, two inputs disagree, or the length is outside the range.
        """
        found: Optional[Tuple[str, int]] = None
        for info, (shape, dtype) in zip(self.inputs, given):
            length = shape[info.open[0]] if info.open and len(shape) == len(info.shape) else 0
            wrong = tuple(shape) != info.shape_at(length) or dtype != info.dtype
            if wrong or (info.open and not length):
                raise ValueError(
                    "input %s is %s%s, the model takes %s" % (info.name, dtype, list(shape), self._text(info))
                )
            if info.open and found is not None and found[1] != length:
                raise ValueError(
                    "input %s has length %d, but %s has %d; give all the same"
                    % (info.name, length, found[0], found[1])
                )
            if info.open and found is None:
                found = (info.name, length)
        if found is None or self.length is None:
            return 0
        name, low, high = self.length
        if not low <= found[1] <= high:
            raise ValueError(
                "input %s has length %d, the model takes %s=%d..%d; give another, or deploy the model for a "
                "wider range" % (found[0], found[1], name, low, high)
            )
        return found[1]

    def _text(self, info: TensorInfo) -> str:
        name = self.length.name if self.length else ""
        sizes = [name if axis in info.open else str(size) for axis, size in enumerate(info.shape)]
        return "%s[%s]" % (info.dtype, ", ".join(sizes))


class Function(NamedTuple):
    """A function of a language model beside main: its inputs, and of how many texts it takes states."""

    inputs: Tuple[TensorInfo, ...]
    texts: int = 1


def functions_of(decoder: Mapping[str, Any]) -> Dict[str, Function]:
    """The functions that a language model has beside main, by name.

    Args:
        decoder: `decoder` of a checked manifest.
    """

    def numbers(**sizes: int) -> Tuple[TensorInfo, ...]:
        return tuple(TensorInfo(name, (size,), "int32") for name, size in sizes.items())

    found = {PREFILL: Function(numbers(tokens=int(decoder["chunk"]), position=1, last=1))}
    if "long_chunk" in decoder:
        found[LONG_PREFILL] = Function(numbers(tokens=int(decoder["long_chunk"]), position=1, last=1))
    if "verified" in decoder:
        found[VERIFY] = Function(numbers(tokens=int(decoder["verified"]), position=1))
    if "sequences" in decoder:
        texts = int(decoder["sequences"])
        found[TOGETHER] = Function(numbers(tokens=texts, positions=texts), texts)
    return found
