"""Tensors as they travel and as files keep them.

Descriptions are checked before a byte of their data is looked at. Types that NumPy lacks are those of
ml_dtypes. A board needs neither library: nothing here imports them before an array is at hand.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

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


def numpy_type(name: str) -> Any:
    """The `numpy.dtype` of a name; those that NumPy lacks are of ml_dtypes.

    Args:
        name: one of `LIMITS.item_bytes`.

    Raises:
        TypeError: no type has this name.
        ImportError: the type is one of ml_dtypes, which is not installed.
    """
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        import ml_dtypes

        if name not in LIMITS.item_bytes or not hasattr(ml_dtypes, name):
            raise
        return numpy.dtype(getattr(ml_dtypes, name))


def without_type(array: Any) -> Any:
    """An array as a .npz or .npy file can keep it: elements that NumPy has no type for are bytes ("void").

    NumPy writes some of these types under names that it does not read.

    Args:
        array: of any type of `LIMITS.item_bytes`.

    Returns:
        The same array, or its bytes with the same shape.
    """
    if array.dtype.isbuiltin != 2:  # 2: of another library
        return array
    import numpy

    return numpy.ascontiguousarray(array).view("V%d" % array.dtype.itemsize).reshape(array.shape)


def with_type(array: Any, name: str) -> Any:
    """An array that was read from a .npz or .npy file, with the type that `without_type` took away.

    Args:
        array: as NumPy read it.
        name: the type that its elements should have.

    Returns:
        The same memory seen as that type if it was lost and has the right size; otherwise the array as it is.
    """
    lost = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.subdtype is None
    if not lost or LIMITS.item_bytes.get(name) != array.dtype.itemsize:
        return array
    known = numpy_type(name)
    return array.view(known) if known.isbuiltin == 2 else array


def _is_size(value: object) -> bool:
    # A bool is an int for Python.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LIMITS.dimension
