"""How quantised weights lie in memory: each element at its place, and once what is read twice."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from host.lowering import lower
from host.lowering.quantised.layout import GROUP, WeightLayout
from tests.decoders.operations import dequantised
from tests.unit.lowering.harness import imported
from tests.unit.lowering.numeric_types.test_quantised_weights import KINDS, Kind, weight_of
from tests.unit.schedules.cpu import dot_cases as cases


def test_a_weight_that_is_read_twice_is_packed_once() -> None:
    weight = weight_of(32, 64, Kind(4))
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((2, 64), "float32"))
    tokens = relax.Var("tokens", relax.TensorType((2,), "int32"))
    shared = [relax.const(one) for one in weight]
    text = tvm.ir.StringImm(json.dumps({"bits": 4, "group": GROUP}))

    def call(operation: str, first: Any, size: int) -> Any:
        arguments = relax.Tuple([first, *shared, text])
        kind = relax.TensorType((2, size), "float32")
        return builder.emit(relax.call_dps_packed(f"edgetlm.{operation}", arguments, kind))

    with builder.function("main", [data, tokens]):
        with builder.dataflow():
            both = relax.Tuple([call("quantised_dense", data, 32), call("quantised_rows", tokens, 64)])
            made = builder.emit_output(both)
        builder.emit_func_output(made)
    model = lower(imported(builder.get()), cases.vnni_board())
    assert sorted(one.nbytes for one in model.parameters) == [32 * 2 * 2, 32 * 32]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(KINDS.values())),
    st.sampled_from(["u8s8", "s8s8", "s8s8_matrices", "u4s8", "s16s16", "widening", "plain"]),
    st.sampled_from([4, 8, 16]),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_packing_moves_every_element_to_its_place(
    kind: Kind, instruction: str, lanes: int, rows: int, blocks: int
) -> None:
    bits, group, depth = kind.bits, kind.group, blocks * kind.block
    if bits == 8 and instruction == "u4s8":
        instruction = "s16s16"
    if bits == 4 and instruction == "s16s16":
        instruction = "u4s8"
    layout = WeightLayout(bits, lanes, instruction, group, kind.asymmetry, kind.multiplied)
    numbers, *others = weight_of(rows, depth, kind, seed=lanes)
    packed, factors = layout.packed(numbers), [layout.packed_scales(one) for one in others]
    panels, groups = -(-rows // lanes), depth // group
    assert packed.shape == (panels, groups, layout.vectors, lanes, layout.width)
    assert packed.dtype.name == layout.stored and len(factors) == 1 + len(layout.further)
    whole = dequantised([numbers, np.ones_like(others[0])], {"bits": bits, "group": group})
    less = 8 if bits == 4 and kind.asymmetry else 0
    draw = random.Random(rows)
    for _ in range(20):
        row, column = draw.randrange(rows), draw.randrange(depth)
        number, place = divmod(column, group)
        step, last = divmod(place, layout.width)
        byte = packed[row // lanes, number, step // 2 if bits == 4 else step, row % lanes, last]
        stored = (int(byte) >> (step % 2 * 4)) & 15 if bits == 4 else int(byte)
        if layout.signed_high and step % 2:
            stored = (stored ^ 8) - 8 + layout.offset
        if layout.widens and bits == 4:
            stored = (stored ^ 8) - 8
        assert stored - layout.offset == whole[row, column] + less
        for made, given_ones in zip(factors, others, strict=True):
            one = column * given_ones.shape[1] // depth
            assert made.shape == (panels, given_ones.shape[1], lanes) and made.dtype == given_ones.dtype
            assert made[row // lanes, one, row % lanes] == given_ones[row, one]
