"""Models of one GroupQueryAttention each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.unit.importers.onnx.contributed_nodes import Case, floats

_HEADS, _GROUPS, _SIZE, _LENGTH = 4, 2, 16, 5
_FIRST = ["q", "k", "v", "pk", "pv", "sl", "tl"]


def grouped_attention(
    name: str,
    rows: int = 1,
    length: int = _LENGTH,
    room: int = 0,
    total: int = _LENGTH,
    lengths: tuple[int, ...] = (),
    more: dict[str, np.ndarray] | None = None,
    order: str = "",
    known: bool = False,
    **attributes: Any,
) -> Case:
    """A node for queries of `length` tokens in `rows`, after a cache with room for `room` of them."""
    inputs = {"q": floats(rows, length, _HEADS * _SIZE)}
    inputs |= {one: floats(rows, length, _GROUPS * _SIZE) for one in "kv"}
    inputs |= {one: floats(rows, _GROUPS, room, _SIZE) for one in ("pk", "pv") if room}
    last = np.array(lengths or [total] * rows, np.int32) - 1
    constants = {"tl": np.array(total, np.int32), **(more or {})}
    (constants if known else inputs)["sl"] = last
    names = [one if one in inputs or one in constants else "-" for one in _FIRST]
    heads = {"num_heads": _HEADS, "kv_num_heads": _GROUPS}
    order = " ".join([*names, *order.split()])
    return Case(
        name, "GroupQueryAttention", inputs, constants, order, (0, 1, 2), attributes=heads | attributes
    )


def _tables(half: int) -> dict[str, np.ndarray]:
    angles = np.outer(np.arange(20), 10 ** -np.linspace(0, 2, half))
    return {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}


_PLACES = {"p": np.array([[3, 1, 2, 9, 4]])}


def _packed() -> Case:
    inputs = {"q": floats(2, 3, (_HEADS + 2 * _GROUPS) * _SIZE)}
    constants = {"sl": np.array([2, 2], np.int32), "tl": np.array(3, np.int32), **_tables(8)}
    attributes = {"num_heads": _HEADS, "kv_num_heads": _GROUPS, "do_rotary": 1}
    order = "q - - - - sl tl c s"
    return Case("packed", "GroupQueryAttention", inputs, constants, order, (0, 1, 2), attributes=attributes)


GROUPED_ATTENTION = (
    grouped_attention("prompt"),
    grouped_attention("prompt_in_a_buffer", room=12, known=True),
    grouped_attention("step", length=1, room=6, total=7),
    grouped_attention("step_of_known_length", length=1, room=9, total=7, known=True),
    grouped_attention("steps_of_two_lengths", rows=2, length=1, room=8, total=7, lengths=(5, 7)),
    grouped_attention("three_more", length=3, room=6, total=9),
    grouped_attention("turned_prompts", rows=2, lengths=(3, 5), more=_tables(8), order="c s", do_rotary=1),
    grouped_attention(
        "turned_step_in_pairs",
        length=1,
        room=6,
        total=7,
        more=_tables(8),
        order="c s",
        do_rotary=1,
        rotary_interleaved=1,
    ),
    grouped_attention("turned_at", more=_PLACES | _tables(8), order="c s p", do_rotary=1),
    grouped_attention("window_of_prompts", rows=2, lengths=(4, 5), local_window_size=2),
    grouped_attention(
        "window_of_a_step", length=1, room=6, total=7, local_window_size=3, softcap=0.5, scale=0.3
    ),
    grouped_attention(
        "bias_by_head", length=1, room=8, total=7, more={"b": floats(1, 4, 1, 7)}, order="- - - b"
    ),
    grouped_attention("bias", more={"b": floats(1, 1, 5, 5), "k0": floats(4)}, order="- - - b k0"),
    grouped_attention("both_ways", causal=0, smooth_softmax=1),
    _packed(),
)
