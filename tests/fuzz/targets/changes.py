"""Mutations that know a format: messages of protobuf, objects of a flat buffer, archives of torch.export."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from tests.fuzz.corpus import pt2_models, tflite_models
from tests.fuzz.mutate import TEXTS, grown, mangled, number

_OPERATORS = sorted({one.name for one in onnx.defs.get_all_schemas() if one.domain == ""})
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_REALS = (0.0, -1.0, 1e30, -1e30, 1e-40, float("nan"), float("inf"))


def message(rng: Random, model: Any, steps: int = 0) -> None:
    """Change a message of protobuf in place.

    Args:
        rng: decides all.
        model: of any type.
        steps: number of changes; any by default.
    """
    for _ in range(steps or rng.choice((1, 1, 1, 2, 3))):
        parts = _parts(model)
        names = _texts(parts)
        _change_message(rng, rng.choice(parts), parts, names)


def _parts(model: Any) -> list[Any]:
    """All messages in a message, itself among them."""
    found, waiting = [], [model]
    while waiting and len(found) < 5000:
        one = waiting.pop()
        found.append(one)
        for descriptor, held in one.ListFields():
            if descriptor.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                waiting += held if descriptor.is_repeated else [held]
    return found


def _texts(parts: list[Any]) -> list[str]:
    found = set()
    for one in parts:
        for descriptor, held in one.ListFields():
            if descriptor.type == FieldDescriptor.TYPE_STRING:
                found.update(held if descriptor.is_repeated else [held])
    return sorted(found)


def _change_message(rng: Random, part: Any, parts: list[Any], names: list[str]) -> None:
    fields = [descriptor for descriptor, _ in part.ListFields()]
    # Mostly what is there; at times a field that is not.
    if not fields or rng.random() < 0.2:
        fields = list(part.DESCRIPTOR.fields)
    descriptor = rng.choice(fields)
    if descriptor.is_repeated:
        _change_list(rng, part, descriptor, parts, names)
    elif descriptor.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        others = [one for one in parts if one.DESCRIPTOR is descriptor.message_type]
        if others and rng.random() < 0.6:
            getattr(part, descriptor.name).CopyFrom(copy.deepcopy(rng.choice(others)))
        else:
            part.ClearField(descriptor.name)
    elif rng.random() < 0.15:
        part.ClearField(descriptor.name)
    else:
        setattr(part, descriptor.name, _scalar(rng, descriptor, getattr(part, descriptor.name), names))


def _change_list(rng: Random, part: Any, descriptor: Any, parts: list[Any], names: list[str]) -> None:
    held = getattr(part, descriptor.name)
    kind = rng.randrange(6)
    if kind == 0 and held:
        del held[rng.randrange(len(held))]
    elif kind == 1 and held:
        held.extend([copy.deepcopy(rng.choice(held))] * rng.choice((1, 1, 3, 40)))
    elif kind == 2 and len(held) > 1:
        order = list(held)
        rng.shuffle(order)
        del held[:]
        held.extend(order)
    elif descriptor.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        others = [one for one in parts if one.DESCRIPTOR is descriptor.message_type]
        if others:
            held.append(copy.deepcopy(rng.choice(others)))
    elif held and kind < 5:
        at = rng.randrange(len(held))
        held[at] = _scalar(rng, descriptor, held[at], names)
    else:
        held.append(_scalar(rng, descriptor, None, names))


def _scalar(rng: Random, descriptor: Any, old: Any, names: list[str]) -> Any:
    kind = descriptor.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if descriptor.type == FieldDescriptor.TYPE_BYTES:
            return mangled(rng, old or b"")[: 1 << 16]
        if descriptor.name == "op_type" and rng.random() < 0.7:
            return rng.choice(_OPERATORS)
        text = rng.choice(names) if names and rng.random() < 0.7 else rng.choice(TEXTS)
        return text.encode("utf-8", "replace").decode()
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        near = (old or 0) + rng.choice((-1, 1, 2))
        return min(high, max(low, rng.choice((number(rng), number(rng), near, rng.randrange(30)))))
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([one.number for one in descriptor.enum_type.values])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    return rng.choice(_REALS)


def flat(rng: Random, data: bytes) -> bytes:
    """A TFLite file with some of its objects changed."""
    model = tflite_models.objects(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        parent, name = rng.choice(_slots(model))
        held = parent[name] if isinstance(parent, list) else getattr(parent, name)
        new = _other(rng, name, held)
        if isinstance(parent, list):
            parent[name] = new
        else:
            setattr(parent, name, new)
    try:
        return tflite_models.packed(model)
    except (TypeError, ValueError, AttributeError, OverflowError, IndexError, KeyError):
        return mangled(rng, data)  # what cannot be written as objects is changed as bytes


def _slots(model: Any) -> list[tuple[Any, Any]]:
    """Every attribute and entry of the objects."""
    found: list[tuple[Any, Any]] = []
    waiting = [model]
    while waiting:
        one = waiting.pop()
        entries = list(enumerate(one)) if isinstance(one, list) else sorted(vars(one).items())
        found += [(one, name) for name, _ in entries]
        waiting += [held for _, held in entries if isinstance(held, list) or hasattr(held, "Pack")]
    return found


def _other(rng: Random, name: Any, held: Any) -> Any:
    if isinstance(held, bool):
        return not held
    if isinstance(held, int):
        small = rng.choice((number(rng) % 2**31, -1, held + 1, rng.randrange(160)))
        return small if abs(small) < 2**31 else 2**31 - 1
    if isinstance(held, float):
        return rng.choice(_REALS)
    if isinstance(held, bytes):
        return rng.choice(TEXTS).encode("utf-8", "surrogatepass")
    if isinstance(held, list):
        kind = rng.randrange(4)
        if kind == 0:
            return held * rng.choice((2, 9))
        if kind == 1:
            return held[: rng.randrange(len(held) + 1)]
        if kind == 2 and held and isinstance(held[0], int):
            return [rng.choice((-1, 0, 1, 2**31 - 1, 1 << 16, one)) for one in held]
        return held[::-1]
    return None if rng.random() < 0.5 else held


def archive(rng: Random) -> bytes:
    """An archive of torch.export with something changed: its program, lists, pickles, entries or bytes."""
    seeds = pt2_models.seeds()
    entries = dict(rng.choice(seeds))
    change = rng.choice(_ARCHIVE)
    folder = rng.choice(("m", "m", "m", "m", "", "..", "a/b", "x" * 300))
    entries = change(rng, entries)
    made = pt2_models.zipped(entries, folder if rng.random() < 0.1 else "m")
    return mangled(rng, made) if rng.random() < 0.1 else made


def _program(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    program = json.loads(entries[pt2_models.PROGRAM])
    return _with_program(entries, grown(rng, program))


def _text(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    """Exchanges one text of the program."""
    program = json.loads(entries[pt2_models.PROGRAM])
    places = []
    waiting = [program]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        places += [(one, key) for key in keys if isinstance(one[key], str)]
        waiting += [one[key] for key in keys]
    for _ in range(rng.choice((1, 1, 2))):
        parent, key = rng.choice(places)
        old = parent[key]
        new = rng.choice((*pt2_models.TARGETS, *pt2_models.EXPRESSIONS, *TEXTS, old + " ", old * 2))
        if key == "target" and rng.random() < 0.5:
            new = (
                "torch.ops.aten."
                + rng.choice(_TORCH)
                + rng.choice((".default", ".Tensor", ".out", ".Scalar", ""))
            )
        parent[key] = new
    return _with_program(entries, program)


def _with_program(entries: dict[str, bytes], program: Any) -> dict[str, bytes]:
    try:
        text = json.dumps(program).encode()
    except ValueError:
        text = b"{}"
    return {**entries, pt2_models.PROGRAM: text}


def _pickle(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    name = pt2_models.PICKLE
    payload = rng.choice(pt2_models.payloads())
    if rng.random() < 0.3:
        payload = mangled(rng, payload)
    if rng.random() < 0.3:
        return {**entries, name: payload}
    if rng.random() < 0.5:
        return {**entries, name: pt2_models.with_pickle(entries[name], payload)}
    name = rng.choice(("data/weights/model.pt", "data/constants/model.pt", "serialized_state_dict.pt"))
    return {**entries, name: pt2_models.with_pickle(entries[pt2_models.PICKLE], payload)}


def _bytes(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    name = rng.choice(sorted(entries))
    return {**entries, name: mangled(rng, entries[name], list(entries.values()))}


def _config(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    name = rng.choice([name for name in sorted(entries) if name.endswith("_config.json")])
    config = grown(rng, json.loads(entries[name]))
    return {**entries, name: json.dumps(config, default=str).encode()}


def _entries(rng: Random, entries: dict[str, bytes]) -> dict[str, bytes]:
    """Entries that are missing, renamed, or too many."""
    kind = rng.randrange(4)
    name = rng.choice(sorted(entries))
    if kind == 0:
        return {one: data for one, data in entries.items() if one != name}
    if kind == 1:
        return {rng.choice(_NAMES) if one == name else one: data for one, data in entries.items()}
    if kind == 2:
        return {**entries, rng.choice(_NAMES): rng.choice(list(entries.values()))}
    other = rng.choice(sorted(entries))
    return {**entries, name: entries[other], other: entries[name]}


_NAMES = (
    *(
        "../../x",
        "/tmp/x",
        "a/../../x",
        "data/aotinductor/model/x.so",
        "models/other.json",
        "code/x.py",
        "x" * 600,
    ),
    *("extra/x", "data/weights/weight_9999999999", "data/constants/tensor_0", "models/model.json "),
    *("serialized_exported_program.json", "serialized_state_dict.pt", "version", "MODELS/MODEL.JSON"),
)
_TORCH = (
    *(
        "add",
        "mul",
        "relu",
        "linear",
        "conv2d",
        "sum",
        "mean",
        "view",
        "reshape",
        "expand",
        "cat",
        "index",
        "gather",
    ),
    *(
        "empty",
        "full",
        "arange",
        "zeros",
        "eye",
        "repeat",
        "pad",
        "scatter",
        "sort",
        "topk",
        "nonzero",
        "item",
        "pow",
    ),
    *(
        "resize_",
        "as_strided",
        "set_",
        "copy_",
        "fill_",
        "random_",
        "rand",
        "sym_size",
        "_assert_async",
        "svd",
    ),
    *("embedding", "bincount", "unfold", "linspace", "tril_indices", "segment_reduce", "_local_scalar_dense"),
)
_ARCHIVE: tuple[Callable[[Random, dict[str, bytes]], dict[str, bytes]], ...] = (
    _program, _program, _program, _text, _text, _text, _pickle, _bytes, _config, _entries,
)  # fmt: skip
