"""The products of one group as a tensor intrinsic: C[L] += sum over the group's elements of A times B[L].

Half bytes are taken apart in registers. How sums are formed depends on the processor, see
`host.lowering.quantised.layout`; all of them are exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import tvm
from tvm.s_tir import TensorIntrin

from host.lowering.quantised.layout import MATRICES, WeightLayout
from host.lowering.quantised.product import element_text
from host.schedules.cpu.quantised.fetching import fetched

# LLVM's intrinsic by `WeightLayout.instruction` and outputs of a panel. VPMADDUBSW multiplies unsigned by
# signed bytes and adds two products to 16 bits, VPMADDWD numbers of 16 bits to 32 (Intel SDM).
_INSTRUCTIONS = {
    ("u8s8", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("u8s8", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("u8s8", 4): "llvm.x86.avx512.vpdpbusd.128",
    ("s8s8", 16): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    (MATRICES, 8): "llvm.aarch64.neon.smmla.v4i32.v16i8",
    ("u4s8", 16): "llvm.x86.avx512.pmaddubs.w.512",
    ("u4s8", 8): "llvm.x86.avx2.pmadd.ub.sw",
    ("u4s8", 4): "llvm.x86.ssse3.pmadd.ub.sw.128",
    ("s16s16", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("s16s16", 8): "llvm.x86.avx2.pmadd.wd",
    ("s16s16", 4): "llvm.x86.sse2.pmadd.wd",
}

# Places of activations, by their step, and of sums, without lane, of one plane of one row.
_ONE_ROW = {"{step}, 0": ""}

# SDOT's lanes: panels have several of its vectors. A vector of SMMLA's has eight elements of two outputs.
_SDOT_LANES, _SMMLA_OUTPUTS = 4, 2
# Products that 16 bits hold the sum of, by the bits of a weight: of numbers from -8 to 7, or -128 to 127, by
# numbers from -127 to 127 (see `WeightLayout.base`).
_IN_16_BITS = {4: 32, 8: 2}
# Panels of registers of 256 bits, by bits of a weight, and the parts of a group that a loop takes there: of
# all steps in a row, LLVM for SpacemiT's X60 puts one plane behind the other, and keeps the group in memory.
_LONG, _PARTS = {4: 64, 8: 32}, 4


def has_intrinsic(layout: WeightLayout) -> bool:
    """Whether there are instructions for a layout; others are left to LLVM's vectors."""
    return layout.widens or (layout.instruction, layout.lanes) in _INSTRUCTIONS


def takes_rows(layout: WeightLayout, rows: int) -> bool:
    """Whether one intrinsic covers all rows of a tile, and both planes of each.

    Each VPDPBUSD adds to what the one before has made, and takes five cycles: those of several rows side by
    side keep a core busy, which does not look ahead over enough rows one after the other. Planes side by side
    need each vector of weights once, where registers would not hold those of a panel for the second plane.
    Widening instructions find half bytes taken apart for all of them, and matrices have two of them.
    """
    if layout.widens or layout.multiplies_matrices:
        return rows * layout.planes > 1
    return layout.joined or (layout.instruction == "u8s8" and rows > 1)


def intrinsic(layout: WeightLayout, rows: int = 0, ahead: int = 0) -> str:
    """The name under which `Schedule.tensorize` finds the products of a group; made when first asked for.

    Args:
        layout: of the weight.
        rows: of a tile, whose products are taken step by step, see `takes_rows`; 0 for those of one plane of
            one row.
        ahead: groups by which it fetches the weights of a later one, where it does so; 0 for none.
    """
    name = f"edgetlm.group_{layout.group}_{layout.bits}_{layout.instruction}_{layout.lanes}"
    if layout.signed_high:
        name += "_joined" if layout.joined else "_signed"
    if rows:
        name += f"_rows_{rows}x{layout.planes}" + f"_ahead_{ahead}" * (ahead > 0)
    if TensorIntrin.get(name, allow_missing=True) is None:
        extra = {"T": tvm.script.tirx}
        texts = (
            (
                _rows_head(layout, rows),
                _rows_description(layout, rows),
                _rows_implementation(layout, rows, ahead),
            )
            if rows
            else (_head(layout), _description(layout), _implementation(layout))
        )
        description, implementation = (
            tvm.script.from_source(texts[0] + body, extra_vars=extra) for body in texts[1:]
        )
        TensorIntrin.register(name, description, implementation)
    return name


def _rows_head(layout: WeightLayout, rows: int) -> str:
    lanes, width, steps, vectors, planes = (
        layout.lanes,
        layout.width,
        layout.steps,
        layout.vectors,
        layout.planes,
    )
    inner = (steps, planes) if layout.planes_together else (planes, steps)
    given, made = f"({rows}, 1, {inner[0]}, {inner[1]}, {width})", f"({rows}, 1, 1, {planes}, {lanes})"
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(a_data: T.handle, weight_data: T.handle, c_data: T.handle) -> None:
    a0, a1, a2, a3, a4 = T.int32(), T.int32(), T.int32(), T.int32(), T.int32()
    c0, c1, c2, c3, c4 = T.int32(), T.int32(), T.int32(), T.int32(), T.int32()
    a = T.match_buffer(
        a_data, {given}, "{layout.activations}", offset_factor=1, strides=[a0, a1, a2, a3, a4]
    )
    weight = T.match_buffer(weight_data, ({vectors}, {lanes}, {width}), "{layout.stored}", offset_factor=1)
    c = T.match_buffer(
        c_data, {made}, "int32", scope="local", offset_factor=1, strides=[c0, c1, c2, c3, c4]
    )
    with T.sblock("root"):
        T.reads(
            c[0:{rows}, 0, 0, 0:{planes}, 0:{lanes}],
            weight[0:{vectors}, 0:{lanes}, 0:{width}],
            a[0:{rows}, 0, 0:{inner[0]}, 0:{inner[1]}, 0:{width}],
        )
        T.writes(c[0:{rows}, 0, 0, 0:{planes}, 0:{lanes}])
"""


def _rows_description(layout: WeightLayout, rows: int) -> str:
    element, place, loop = _described(layout)
    # An axis of one row or plane is none to `tensorize`.
    outer = {"r": rows, "e": layout.planes}
    outer = {name: extent for name, extent in outer.items() if extent > 1}
    loops, axes = ("".join(f"{start}{name}, " for name in outer) for start in ("", "v"))
    extents = "".join(f"{extent}, " for extent in outer.values())
    row, plane = ("v" + name if name in outer else "0" for name in ("r", "e"))
    kinds, total = "S" * len(outer), f"c[{row}, 0, 0, {plane}, vl]"
    inner = f"vq, {plane}" if layout.planes_together else f"{plane}, vq"
    return f"""
        for {loops}q, l{loop[0]} in T.grid({extents}{layout.steps}, {layout.lanes}{loop[1]}):
            with T.sblock("update"):
                {axes}vq, vl{loop[2]} = T.axis.remap("{kinds}RS{loop[3]}", [{loops}q, l{loop[0]}])
                {total} = {total} + T.cast({element}, "int32") * T.cast(
                    a[{row}, 0, {inner}, {place}], "int32"
                )
"""


def _rows_implementation(layout: WeightLayout, rows: int, ahead: int) -> str:
    """Text of the products step by step: those of all rows and planes do not wait for one another."""
    if layout.widens or layout.multiplies_matrices:
        every = itertools.product(range(rows), range(layout.planes))
        inner = "{{step}}, {plane}" if layout.planes_together else "{plane}, {{step}}"
        places = {
            f"{row}, 0, {inner.format(plane=plane)}, 0": f"{row}, 0, 0, {plane}, " for row, plane in every
        }
        return _widened(layout, places) if layout.widens else _matrix_products(layout, places)
    lanes, width, instruction = _lanes(layout), layout.width, _INSTRUCTIONS[layout.instruction, layout.lanes]
    lines = []
    for first, step in itertools.product(range(0, layout.lanes, lanes), range(layout.steps)):
        if ahead and step * layout.vectors % layout.steps == 0:
            lines += fetched(layout, step * layout.vectors // layout.steps, ahead)
        if layout.bits == 4 and step % 2 == 0:
            half = step // 2
            lines.append(f'w{half} = weight.vload([{half}, {first}, 0], "uint8x{lanes * width}")')
        element = _element(layout, step, first)
        for row, plane in itertools.product(range(rows), range(layout.planes)):
            given = _given(layout, f"{row}, 0, {plane}, {step}, 0")
            total = f'c.vload([{row}, 0, 0, {plane}, {first}], "int32x{lanes}")'
            made = _call(instruction, f"{total}, {element}", given, f"int32x{lanes}")
            lines.append(f"c[{row}, 0, 0, {plane}, T.ramp(T.int32({first}), 1, {lanes})] = {made}")
    return "".join(f"        {line}\n" for line in lines)


def _head(layout: WeightLayout) -> str:
    lanes, width, steps, vectors = layout.lanes, layout.width, layout.steps, layout.vectors
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    a: T.Buffer(({steps}, {width}), "{layout.activations}", offset_factor=1),
    weight: T.Buffer(({vectors}, {lanes}, {width}), "{layout.stored}", offset_factor=1),
    c: T.Buffer(({lanes},), "int32", scope="local", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:{lanes}], weight[0:{vectors}, 0:{lanes}, 0:{width}], a[0:{steps}, 0:{width}])
        T.writes(c[0:{lanes}])
"""


def _description(layout: WeightLayout) -> str:
    element, place, loop = _described(layout)
    return f"""
        for q, l{loop[0]} in T.grid({layout.steps}, {layout.lanes}{loop[1]}):
            with T.sblock("update"):
                vq, vl{loop[2]} = T.axis.remap("RS{loop[3]}", [q, l{loop[0]}])
                c[vl] = c[vl] + T.cast({element}, "int32") * T.cast(a[vq, {place}], "int32")
"""


def _described(layout: WeightLayout) -> tuple[str, str, tuple[str, str, str, str]]:
    """Of a description: the stored element, its place in a lane, and the loop over places.

    A loop is its variable, extent, axis and kind; elements one by one have none, as an axis of one place is
    none to `tensorize`.
    """
    several = layout.width > 1
    place = "vj" if several else "0"
    element = element_text(layout, "vq", f"|vl, {place}", joined=layout.joined).replace("[, ", "[")
    return element, place, (", j", f", {layout.width}", ", vj", "R") if several else ("", "", "", "")


def _implementation(layout: WeightLayout) -> str:
    if layout.widens or layout.multiplies_matrices:
        return _widened(layout, _ONE_ROW) if layout.widens else _matrix_products(layout, _ONE_ROW)
    vectors = range(0, layout.lanes, _lanes(layout))
    return "".join(f"        {line}\n" for first in vectors for line in _sums(layout, first))


def _widened(layout: WeightLayout, places: Mapping[str, str]) -> str:
    """Text of the products of bytes, each of which LLVM makes one multiplication that widens and adds.

    RISC-V's VWMACC takes the activation from a general register, Arm's SMLAL from all lanes of a vector.

    Args:
        layout: of the weight.
        places: of activations, by their step, and of the sums that get their products, without lane.
    """
    lanes, most = layout.lanes, _IN_16_BITS[layout.bits]
    parts = _PARTS if lanes >= _LONG[layout.bits] else 1
    steps = layout.steps // parts
    # Sums of 16 bits go on from part to part where they hold all products of a group.
    kept = parts > 1 and most >= layout.steps
    zeros = f"T.broadcast(T.int16(0), {lanes})"
    before = [f'halves = T.alloc_buffer(({len(places) * lanes},), "int16", scope="local")'] if kept else []
    inner: list[str] = []
    behind: list[str] = []
    for step in range(steps):
        index = _of_part(step, steps, parts)
        if layout.bits == 4 and step % 2 == 0:
            byte = _of_part(step // 2, steps // 2, parts)
            inner.append(f'w{step // 2} = weight.vload([{byte}, 0, 0], "uint8x{lanes}")')
        inner.append(f'e{step} = T.cast({_element(layout, step, index=index)}, "int16x{lanes}")')
        for number, (given, total) in enumerate(places.items()):
            half = f"halves[T.ramp(T.int32({number * lanes}), 1, {lanes})]"
            loaded = f'halves.vload([{number * lanes}], "int16x{lanes}")'
            number_of_row = f'T.cast(a[{given.format(step=index)}], "int16")'
            product = f"e{step} * T.broadcast({number_of_row}, {lanes})"
            so_far = f"s{number}_{step - 1} + " if step % most else f"{loaded} + " if kept else ""
            inner.append(f"s{number}_{step} = {so_far}{product}")
            sums = f"s{number}_{step}"
            if kept and step + 1 == steps:
                before.append(f"{half} = {zeros}")
                inner.append(f"{half} = {sums}")
            if (step + 1) % most == 0 or step + 1 == steps:
                sums = loaded if kept else sums
                wide = f'c.vload([{total}0], "int32x{lanes}") + T.cast({sums}, "int32x{lanes}")'
                line = f"c[{total}T.ramp(T.int32(0), 1, {lanes})] = {wide}"
                (behind if kept else inner).append(line)
    if parts > 1:
        inner = [f"for part in T.serial({parts}):", *(f"    {line}" for line in inner)]
    return "".join(f"        {line}\n" for line in (*before, *inner, *behind))


def _of_part(place: int, count: int, parts: int) -> str:
    """Text of a place among those of a part."""
    return f"part * {count} + {place}" if parts > 1 else str(place)


def _matrix_products(layout: WeightLayout, places: Mapping[str, str]) -> str:
    """Text of the products of matrices: two rows of activations, or both planes of one, by two outputs.

    SMMLA takes two rows of eight elements and two outputs, and gives the sums of the first row, then those of
    the second (Arm ARM, FEAT_I8MM). A row without a second one is taken twice.

    Args:
        layout: of the weight.
        places: of activations, by their step, and of the sums that get their products, without lane.
    """
    instruction, order = _INSTRUCTIONS[layout.instruction, layout.lanes], list(places.items())
    pairs = list(enumerate(zip(order[::2], order[1::2] + order[-1:], strict=False)))
    vectors, lines = range(0, layout.lanes, 2 * _SMMLA_OUTPUTS), []
    for (number, both), first in itertools.product(pairs, vectors):
        sums = [f'c.vload([{total}{first}], "int32x4")' for _, total in both]
        lines += [f"s{number}_{first + 2 * half} = {_joined(sums, half, 'int32x4')}" for half in (0, 1)]
    for step, (number, both) in itertools.product(range(layout.steps), pairs):
        # Both planes of a row, or two steps of each of two rows.
        first = step if layout.planes_together else step // 2 * 2
        loads = [f'a.vload([{given.format(step=first)}], "int8x16")' for given, _ in both]
        made = loads[0] if layout.planes_together else _joined(loads, step % 2, "int8x16")
        lines.append(f"a{number}_{step} = {made}")
    for step, first in itertools.product(range(layout.steps), range(0, layout.lanes, _SMMLA_OUTPUTS)):
        if layout.bits == 4 and step % 2 == 0:
            lines.append(f'w{step // 2}_{first} = weight.vload([{step // 2}, {first}, 0], "uint8x16")')
        lines.append(f"e{step}_{first} = {_element(layout, step, first)}")
        for number, _ in pairs:
            total = f"s{number}_{first}" + f"_{step - 1}" * (step > 0)
            made = _call(instruction, f"{total}, a{number}_{step}", f"e{step}_{first}", "int32x4")
            lines.append(f"s{number}_{first}_{step} = {made}")
    for (number, both), first in itertools.product(pairs, vectors):
        sums = [f"s{number}_{first + 2 * half}_{layout.steps - 1}" for half in (0, 1)]
        for half, total in enumerate(dict.fromkeys(total for _, total in both)):
            lines.append(f"c[{total}T.ramp(T.int32({first}), 1, 4)] = {_joined(sums, half, 'int32x4')}")
    return "".join(f"        {line}\n" for line in lines)


def _joined(vectors: Sequence[str], half: int, dtype: str) -> str:
    """Text of the lower or the higher halves of two vectors of 128 bits, side by side."""
    both = ", ".join(f'T.reinterpret({vector}, dtype="int64x2")' for vector in vectors)
    return f'T.reinterpret(T.Shuffle([{both}], [{half}, {half + 2}]), dtype="{dtype}")'


def _lanes(layout: WeightLayout) -> int:
    """Outputs of one vector of weights."""
    if layout.multiplies_matrices:
        return _SMMLA_OUTPUTS
    return _SDOT_LANES if layout.instruction == "s8s8" else layout.lanes


def _sums(layout: WeightLayout, first: int) -> list[str]:
    """Lines of the products that one vector of sums gets, that of the lanes from `first` on."""
    lanes, instruction = _lanes(layout), _INSTRUCTIONS[layout.instruction, layout.lanes]
    sums = f'c[T.ramp(T.int32({first}), 1, {lanes})] = c.vload([{first}], "int32x{lanes}")'
    lines = []
    if layout.bits == 4:
        lines += [
            f'w{v} = weight.vload([{v}, {first}, 0], "uint8x{lanes * layout.width}")'
            for v in range(layout.vectors)
        ]
    products = [_product(layout, step, instruction, first) for step in range(layout.steps)]
    if layout.instruction == "u4s8":
        pairs = " + ".join(products)
        add, ones = _INSTRUCTIONS["s16s16", lanes], f"T.broadcast(T.int16(1), {2 * lanes})"
        lines.append(f"{sums} + {_call(add, f'({pairs})', ones, f'int32x{lanes}')}")
    elif layout.instruction == "s16s16":
        lines += [f"{sums} + {one}" for one in products]
    else:
        # These add to what they are given.
        lines += [f"c[T.ramp(T.int32({first}), 1, {lanes})] = {one}" for one in products]
    return lines


def _product(layout: WeightLayout, step: int, instruction: str, first: int) -> str:
    """Text of the products of a step with the lanes from `first` on."""
    lanes, width = _lanes(layout), layout.width
    both = lanes * width
    given, element = _given(layout, f"{step}, 0"), _element(layout, step, first)
    if layout.instruction == "u4s8":
        return _call(instruction, element, given, f"int16x{2 * lanes}")
    if layout.instruction == "s16s16":
        return _call(instruction, f'T.cast({element}, "int16x{both}")', given, f"int32x{lanes}")
    total = f'c.vload([{first}], "int32x{lanes}")'
    return _call(instruction, f"{total}, {element}", given, f"int32x{lanes}")


def _given(layout: WeightLayout, place: str) -> str:
    """Text of the activations that are multiplied in one step, the same in every lane."""
    lanes, width, kind = _lanes(layout), layout.width, layout.activations
    if layout.instruction == "s8s8":
        # SDOT takes any lane of a vector for all: a vector holds those of four steps, and is loaded once.
        *before, step, _ = place.split(", ")
        start = ", ".join([*before, str(int(step) // lanes * lanes), "0"])
        steps = f'T.reinterpret(a.vload([{start}], "int8x{lanes * width}"), dtype="int32x{lanes}")'
        lane = ", ".join([str(int(step) % lanes)] * lanes)
        return f'T.reinterpret(T.Shuffle([{steps}], [{lane}]), dtype="int8x{lanes * width}")'
    # LLVM loads some groups as integers into general registers; as floating-point numbers all are broadcast.
    group = f'T.reinterpret(a.vload([{place}], "{kind}x{width}"), dtype="float32")'
    return f'T.reinterpret(T.broadcast({group}, {lanes}), dtype="{kind}x{lanes * width}")'


def _element(layout: WeightLayout, step: int, first: int = 0, index: str = "") -> str:
    """Text of the vector of stored elements of a step, of the lanes from `first` on.

    Args:
        layout: of the weight.
        step: of the group, or of a part of it.
        first: lane.
        index: text of the step in the group, where that is another.
    """
    both = _lanes(layout) * layout.width
    if layout.bits == 8:
        return f'weight.vload([{index or step}, {first}, 0], "{layout.stored}x{both}")'
    if layout.widens:
        half = f"w{step // 2}" if step % 2 else f"T.shift_left(w{step // 2}, T.broadcast(T.uint8(4), {both}))"
        return f'T.shift_right(T.reinterpret({half}, dtype="int8x{both}"), T.broadcast(T.int8(4), {both}))'
    stored = f"w{step // 2}" + f"_{first}" * layout.multiplies_matrices
    half = f"{stored} & T.broadcast(T.uint8(15), {both})"
    if step % 2 and layout.signed_high:
        whole = f'T.reinterpret({stored}, dtype="int8x{both}")'
        return whole if layout.joined else f"T.shift_right({whole}, T.broadcast(T.int8(4), {both}))"
    if step % 2:
        half = f"T.shift_right({stored}, T.broadcast(T.uint8(4), {both}))"
    return f'T.reinterpret({half}, dtype="int8x{both}")' if layout.takes_signs else f"({half})"


def _call(instruction: str, first: str, second: str, dtype: str) -> str:
    name = f'T.llvm_lookup_intrinsic_id("{instruction}")'
    return f'T.call_llvm_pure_intrin({name}, {first}, {second}, dtype="{dtype}")'
