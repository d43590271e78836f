"""Names and element types of what goes into an ONNX file and comes out, without the package `onnx`.

Source: Protocol Buffers, "Encoding"; the numbers of fields are those of onnx.proto.
"""

from __future__ import annotations

import mmap
from typing import Any, Iterator, List, NamedTuple, Tuple

from device_agent.execute.engines import fails

_GRAPH = 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_NAME, _NAME_OF_TENSOR, _TYPE, _TENSOR_TYPE, _ELEMENT = 1, 8, 2, 1, 1
# TensorProto.DataType.
_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}


class FileTensor(NamedTuple):
    """An input or output of a file."""

    name: str
    dtype: str


def tensors_of_file(path: str) -> Tuple[List[FileTensor], List[FileTensor]]:
    """Inputs and outputs of an ONNX file, in its order; inputs that have a value in the file are left out.

    Raises:
        AgentError: the file is no ONNX file.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            inputs: List[FileTensor] = []
            outputs: List[FileTensor] = []
            valued = set()
            for begin, end in _parts(data, 0, len(data), _GRAPH):
                valued |= {
                    _text(data, *part, _NAME_OF_TENSOR) for part in _parts(data, begin, end, _INITIALIZER)
                }
                inputs += [_tensor(data, *part) for part in _parts(data, begin, end, _INPUT)]
                outputs += [_tensor(data, *part) for part in _parts(data, begin, end, _OUTPUT)]
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise fails("no ONNX file:", path, error) from error
    return [one for one in inputs if one.name not in valued], outputs


def _tensor(data: Any, begin: int, end: int) -> FileTensor:
    element = 0
    for kind in _parts(data, begin, end, _TYPE):
        for tensor in _parts(data, *kind, _TENSOR_TYPE):
            element = next((value for number, value, _ in _fields(data, *tensor) if number == _ELEMENT), 0)
    return FileTensor(_text(data, begin, end, _NAME), _TYPES[element])


def _text(data: Any, begin: int, end: int, wanted: int) -> str:
    return next((data[a:b].decode() for a, b in _parts(data, begin, end, wanted)), "")


def _parts(data: Any, begin: int, end: int, wanted: int) -> Iterator[Tuple[int, int]]:
    """Where the parts of a message that have bytes begin and end, of one field."""
    for number, first, last in _fields(data, begin, end):
        if number == wanted and last >= 0:
            yield first, last


def _fields(data: Any, begin: int, end: int) -> Iterator[Tuple[int, int, int]]:
    """The fields of a message: number, then begin and end of its bytes, or a number and -1."""
    at = begin
    while at < end:
        tag, at = _number(data, at, end)
        kind = tag & 7
        if kind == 0:
            value, at = _number(data, at, end)
            yield tag >> 3, value, -1
            continue
        size, at = _number(data, at, end) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if size > end - at:
            raise ValueError("a part of it ends behind the file")
        if kind == 2:
            yield tag >> 3, at, at + size
        at += size


def _number(data: Any, at: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number in it does not end")
