"""Descriptions of tensors as they travel: checked before a byte of their data is looked at."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS

_LIMITS = LIMITS.wire


class TensorSize(NamedTuple):
    """One tensor of a blob.

    Attributes:
        shape: sizes, in elements.
        dtype: one of `LIMITS.item_bytes`.
        size: in bytes.
    """

    shape: Tuple[int, ...]
    dtype: str
    size: int


def tensor_sizes(fields: Fields, available: int) -> List[TensorSize]:
    """The tensors that the field "tensors" describes, whose bytes follow one another in a blob.

    Args:
        fields: of the header; a wrong one raises its error.
        available: bytes of the blob, which have to be as many.
    """
    sizes = []
    total = 0
    for one in fields.objects("tensors", _LIMITS.tensors):
        shape = one.items("shape", _LIMITS.rank)
        if not all(_is_size(size) for size in shape):
            raise one.wrong("shape", "a list of sizes")
        dtype = one.text("dtype", _LIMITS.name_characters)
        if dtype not in LIMITS.item_bytes:
            raise one.error(
                "dtype %s cannot be sent; use one of %s" % (repr(dtype), ", ".join(LIMITS.item_bytes))
            )
        size = LIMITS.item_bytes[dtype]
        for dimension in shape:
            size *= dimension
        total += size
        sizes.append(TensorSize(tuple(shape), dtype, size))
    # Products and sums of any size are ints for Python; none that is too large is as large as a blob.
    if total != available or total > _LIMITS.blob_bytes:
        shown = "more than any blob" if total > _LIMITS.blob_bytes else "%d bytes" % total
        raise fields.error("tensors of %s in a blob of %d" % (shown, available))
    return sizes


def _is_size(value: object) -> bool:
    # A bool is an int for Python.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LIMITS.dimension
