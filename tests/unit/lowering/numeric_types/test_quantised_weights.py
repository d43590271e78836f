"""Products and rows of weights of 4 and 8 bits: what they compute, for every instruction that there is."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
from tvm import relax

from host.gensor import Gensor
from host.lowering import lower
from host.lowering.quantised.layout import GROUP, WeightLayout
from host.model import DeviceProfile, LoweredModel
from host.schedules import scheduled_function, space_for
from targets import Board, board_for, declared
from tests.decoders.operations import dequantised
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import board as plain_board
from tests.unit.lowering.harness import flat, hardly_optimised, imported
from tests.unit.schedules.cpu import dot_cases as cases

BITS = (4, 8)
_ANY_PROCESSOR = hardly_optimised(tvm.target.Target({"kind": "llvm"}))


class Kind(NamedTuple):
    """A form of weights."""

    bits: int
    block: int = GROUP
    group: int = GROUP
    asymmetry: str = ""
    multiplied: bool = False
    rounding: int = 16

    @property
    def options(self) -> dict[str, Any]:
        """Those of an operation."""
        options: dict[str, Any] = {"bits": self.bits, "group": self.group}
        options |= {"asymmetry": self.asymmetry} if self.asymmetry else {}
        options |= {"multiplied": True} if self.multiplied else {}
        return options | ({"rounding": self.rounding} if self.rounding != 16 else {})


KINDS = {
    "int4": Kind(4),
    "int8": Kind(8),
    "int4, a scale for 64": Kind(4, 64),
    "int8, a scale for 64": Kind(8, 64),
    "int4 with zero points": Kind(4, 64, asymmetry="zero"),
    "int8 with zero points": Kind(8, asymmetry="zero"),
    "Q4_1": Kind(4, asymmetry="minimum"),
    "Q5_1": Kind(8, asymmetry="minimum"),
    "Q4_K": Kind(4, 64, asymmetry="minimum", multiplied=True),
    "Q5_K": Kind(8, 64, asymmetry="minimum", multiplied=True),
    "Q6_K": Kind(8, 64, group=16, multiplied=True),
    # A prefill's, whose activations are bytes.
    "int4, rounded": Kind(4, 64, rounding=8),
    "int8, rounded": Kind(8, rounding=8),
    "int4 with zero points, rounded": Kind(4, 64, asymmetry="zero", rounding=8),
    "Q4_K, rounded": Kind(4, 64, asymmetry="minimum", multiplied=True, rounding=8),
    "Q6_K, rounded": Kind(8, 64, group=16, multiplied=True, rounding=8),
}


def weight_of(rows: int, depth: int, kind: Kind, seed: int = 0) -> list[np.ndarray]:
    """A quantised weight (N, K) and what belongs to it, in the order of an operation."""
    draw = np.random.default_rng([seed, rows, depth, kind.bits])
    if kind.bits == 4:
        numbers = draw.integers(0, 256, (rows, depth // 2), dtype=np.uint8)
    else:
        numbers = draw.integers(-128, 128, (rows, depth), dtype=np.int8)
    blocks, groups = (rows, depth // kind.block), (rows, depth // kind.group)
    scales = (draw.random(blocks) * 0.01).astype(np.float16)
    scales[draw.random(scales.shape) < 0.1] = 0.0
    made = [numbers, scales]
    if kind.multiplied:
        made.append(draw.integers(-128, 128, groups, dtype=np.int8))
    if kind.asymmetry == "zero":
        made.append(draw.integers(*((0, 17) if kind.bits == 4 else (-128, 128)), blocks, dtype=np.int8))
    if kind.asymmetry == "minimum":
        made.append(draw.normal(scale=0.05, size=blocks).astype(np.float16))
        made += [draw.integers(0, 64, groups, dtype=np.int8)] if kind.multiplied else []
    return made


def module_of(
    operation: str, data: tuple[Any, str], result: tuple[int, int], weight: Sequence[np.ndarray], kind: Kind
) -> Any:
    builder = relax.BlockBuilder()
    variable = relax.Var("data", relax.TensorType(data[0], data[1]))
    text = tvm.ir.StringImm(json.dumps(kind.options))
    arguments = relax.Tuple([variable, *(relax.const(one) for one in weight), text])
    with builder.function("main", [variable]):
        with builder.dataflow():
            call = relax.call_dps_packed(
                f"edgetlm.{operation}", arguments, relax.TensorType(result, "float32")
            )
            made = builder.emit_output(builder.emit(call))
        builder.emit_func_output(made)
    return builder.get()


def product(rows: int, columns: int, depth: int, kind: Kind, on: Board) -> tuple[LoweredModel, np.ndarray]:
    """A lowered product, and the values of its weight."""
    weight = weight_of(columns, depth, kind)
    module = module_of("quantised_dense", ((rows, depth), "float32"), (rows, columns), weight, kind)
    return lower(imported(module), on), dequantised(weight, kind.options)


def run(
    model: LoweredModel, functions: dict[str, Any], *inputs: np.ndarray, on: Board | None = None
) -> np.ndarray:
    """What a lowered model computes with other functions in place of its own.

    The test is skipped once they are compiled, where this processor lacks the instructions of `on`.
    """
    changed = {
        variable: functions.get(variable.name_hint, function)
        for variable, function in model.module.functions.items()
    }
    compiled = tvm.compile(tvm.IRModule(changed), target=hardly_optimised(model.target))
    if on is not None and not cases.runs_here(on):
        pytest.skip(f"this processor has no {on.hardware.dot_product}: the program is compiled and not run")
    machine = relax.VirtualMachine(compiled, tvm.cpu())
    [made] = flat(machine["main"](*(tvm.runtime.tensor(one) for one in (*inputs, *model.parameters))))
    return made


def programs(model: LoweredModel, on: Board, threads: int, values: Callable[[Any], Any]) -> dict[str, Any]:
    """The product's function as its rule makes it with some decisions."""
    [task] = [one for one in model.tasks if "dense" in one.name]
    space = space_for(task, on.hardware, threads)
    assert space.rule.name == "quantised"
    candidate = space.candidate(values(space), "test")
    made = scheduled_function(space.apply(candidate))
    return {task.name: made.with_attr("global_symbol", task.name)}


BOARDS = {
    "AVX-512 with VNNI": cases.vnni_board,
    "AVX2 with VNNI": lambda cores=1: cases.vnni_board(cores, "avx2"),
    "AVX2": cases.pairs_board,
}


@in_turn("name, kind, form", BOARDS, KINDS, [((1, 64, 192), 1), ((8, 40, 64), 2), ((6, 48, 320), 1)])
def test_random_programs_of_every_instruction_compute_the_product(
    name: str, kind: str, form: tuple[tuple[int, int, int], int]
) -> None:
    shape, threads = form
    on = BOARDS[name](threads)
    model, weight = product(*shape, KINDS[kind], on)
    data = np.random.default_rng(1).normal(size=(shape[0], shape[2])).astype("float32")
    # Groups of zeros, and of one very large number.
    data[0, :GROUP], data[-1, -1] = 0.0, 1e4
    generator = random.Random(shape[0])
    made = run(model, programs(model, on, threads, lambda space: space.sample(generator)), data, on=on)
    wanted = data.astype("float64") @ weight.T.astype("float64")
    assert (np.abs(made - wanted) <= bound(data, weight, KINDS[kind])).all()


def bound(data: np.ndarray, weight: np.ndarray, kind: Kind, on: Board | None = None) -> np.ndarray:
    """How far a product may be off: rows are rounded, each group by its largest element.

    With as many bits as `on`, the processor, multiplies; on x86 without it.
    """
    steps = 127 if kind.rounding == 8 else 32639
    if on is not None:
        steps = WeightLayout.of(hardware=on.hardware, **kind.options).largest
    largest = np.abs(data).reshape(len(data), -1, kind.group).max(axis=-1).repeat(kind.group, axis=-1)
    return (largest / steps) @ np.abs(weight).T * 0.6 + 1e-5 * np.abs(data @ weight.T).max()


def without_products_of_bytes(lanes: int) -> Board:
    """A processor with vectors of so many lanes of 32 bits, and no instruction that adds up products."""
    on = plain_board(4)
    changed = dataclasses.replace(on.hardware, dot_product="", vector_bits=32 * lanes)
    return dataclasses.replace(on, hardware=changed)


@in_turn("name, lanes, rows", KINDS, [1, 4], [1, 3])
def test_a_processor_without_products_of_bytes_has_vectors(name: str, lanes: int, rows: int) -> None:
    kind, on = KINDS[name], without_products_of_bytes(lanes)
    wanted = "widening" if lanes > 1 else "plain"
    assert WeightLayout.of(hardware=on.hardware, **kind.options).instruction == wanted
    model, weight = product(rows, 24, 64, kind, on)
    data = np.random.default_rng(2).normal(size=(rows, 64)).astype("float32")
    made = run(model, programs(model, on, 1, lambda space: space.sample(random.Random(3))), data)
    exact = data.astype("float64") @ weight.T.astype("float64")
    assert (np.abs(made - exact) <= bound(data, weight, kind, on)).all()


@pytest.mark.parametrize("rounding", [8, 16])
@pytest.mark.parametrize(("bits", "asymmetry"), [(4, ""), (4, "zero"), (8, "")])
def test_the_largest_products_fit_lanes_of_16_bits(bits: int, asymmetry: str, rounding: int) -> None:
    on, kind = without_products_of_bytes(4), Kind(bits, asymmetry=asymmetry, rounding=rounding)
    numbers, scales, *others = weight_of(24, 64, kind)
    numbers[:12] = 0 if bits == 4 else -128
    numbers[12:] = 255 if bits == 4 else 127
    weights = [numbers, np.full_like(scales, 0.01), *(np.zeros_like(one) for one in others)]
    module = module_of("quantised_dense", ((4, 64), "float32"), (4, 24), weights, kind)
    model = lower(imported(module), on)
    # The first plane and the second one at the ends of what they hold.
    data = np.ones((4, 64), "float32")
    data[1] *= -1
    data[2:, 1:] = np.float32([[-64.5 / 128 / 127], [63.4 / 128 / 127]])
    made = run(model, programs(model, on, 1, lambda space: space.sample(random.Random(1))), data)
    weight = dequantised(weights, kind.options)
    assert (np.abs(made - data @ weight.T) <= bound(data, weight, kind, on)).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", BOARDS)
def test_rows_that_are_rounded_to_bytes_are_multiplied_exactly(bits: int, name: str) -> None:
    """The program gives what the rounded rows do: nothing else is rounded but sums of groups."""
    on = BOARDS[name](1)
    kind = Kind(bits, rounding=8)
    model, weight = product(16, 48, 128, kind, on)
    data = np.random.default_rng(4).normal(size=(16, 128)).astype("float32")
    groups = data.reshape(16, -1, GROUP)
    scales = np.abs(groups).max(axis=-1, keepdims=True) * np.float32(1 / 127)
    made = run(model, programs(model, on, 1, lambda space: space.sample(random.Random(bits))), data, on=on)
    rounded = (np.rint(groups * (np.float32(1) / scales)) * scales).reshape(data.shape)
    # Pairs of 16 bits hold more than bytes: nothing is gained by rounding.
    whole = WeightLayout.of(bits, on.hardware, rounding=8).rounding == 16
    wanted = (data if whole else rounded).astype("float64") @ weight.T.astype("float64")
    assert np.abs(made - wanted).max() <= (1e-4 if whole else 1e-5) * np.abs(wanted).max()


@pytest.mark.parametrize("bits", BITS)
def test_the_first_program_of_a_prefill_scales_many_rows_for_one_weight(bits: int) -> None:
    on = cases.vnni_board()
    model, _ = product(64, 512, 256, Kind(bits, rounding=8), on)
    [task] = [one for one in model.tasks if "dense" in one.name]
    space = space_for(task, on.hardware)
    [first] = Gensor().propose(space, DeviceProfile("device", on, on.hardware, 1), (), 1, seed=0)
    assert first.value("rows") * first.value("vectors") >= 8 and first.value("unroll") == 1
    # The products of a group and the sums of those before fit the registers of a core with one unit.
    assert 2 * first.value("rows") * first.value("vectors") <= on.hardware.vector_registers - 4


def test_the_first_program_of_two_planes_keeps_its_sums_in_registers() -> None:
    on = cases.vnni_board()
    model, _ = product(64, 2304, 768, Kind(4), on)
    [task] = [one for one in model.tasks if "dense" in one.name]
    profile = DeviceProfile("device", on, on.hardware, 1)
    [first] = Gensor().propose(space_for(task, on.hardware), profile, (), 1, seed=0)
    # The sums so far, two products, and what these are joined to, beside the weight of a group.
    sums = 4 * first.value("rows") * first.value("vectors")
    assert first.value("rows") > 1 and first.value("unroll") == 1
    assert sums <= on.hardware.vector_registers - 4


@pytest.mark.parametrize("bits", BITS)
def test_the_first_program_keeps_enough_bytes_on_their_way(bits: int) -> None:
    on = cases.vnni_board()
    model, _ = product(1, 512, 256, Kind(bits), on)
    [task] = [one for one in model.tasks if "dense" in one.name]
    space = space_for(task, on.hardware)
    profile = DeviceProfile("device", on, on.hardware, 1)
    [first] = Gensor().propose(space, profile, (), 1, seed=0)
    group_bytes = 16 * GROUP * bits // 8
    assert first.value("ahead") * first.value("vectors") * group_bytes >= 8192
    best = space.estimate_s(dict(first.decisions))  # type: ignore[arg-type]
    draws = [space.sample(random.Random(seed)) for seed in range(40)]
    assert best <= min(space.estimate_s(one) for one in draws) * 1.001


@pytest.mark.parametrize("bits", BITS)
def test_a_line_is_fetched_beside_each_load(bits: int) -> None:
    """Lines that are fetched one behind the other take a sixth longer than those in turn with loads."""
    on = cases.vnni_board()
    model, _ = product(1, 64, 512, Kind(bits), on)
    [task] = [one for one in model.tasks if "dense" in one.name]
    space = space_for(task, on.hardware)
    for vectors, ahead in ((1, 0), (1, 16), (2, 16)):
        values = {"vectors": vectors, "rows": 1, "unroll": 1, "ahead": ahead}
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        lines = [line for line in function.script().splitlines() if "prefetch" in line or "vpdpbusd" in line]
        kinds = "".join("f" if "prefetch" in line else "p" for line in lines)
        # Two products a step, of both planes; a half byte's vector has two steps.
        each = "fpp" if bits == 8 else "fpppp"
        beside = each * (8 if bits == 8 else 4)
        assert (kinds == beside) == (vectors == 1 and ahead > 0) and ("f" in kinds) == (ahead > 0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_rows_of_a_packed_weight_and_numbers_that_are_none(kind: Kind) -> None:
    on = cases.vnni_board()
    weight = weight_of(37, 64, kind)
    tokens = np.array([0, 36, 5, -3, 99], np.int32)
    module = module_of("quantised_rows", ((5,), "int32"), (5, 64), weight, kind)
    made = run(lower(imported(module), cases.executable_here(on)), {}, tokens)
    wanted = dequantised(weight, kind.options)[np.clip(tokens, 0, 36)]
    if kind.asymmetry == "minimum":
        # A processor may add the minimum without rounding before.
        np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-7 * np.abs(wanted).max())
    else:
        np.testing.assert_array_equal(made, wanted)


# Boards with products of bytes, and without: programs of the latter are those of another test too.
SIGNED = [("raspberry_pi_5", "s8s8"), ("jetson_agx_thor", "s8s8_matrices")]
WIDENED = [("raspberry_pi_4", "widening"), ("rv64gc", "plain")]


@pytest.mark.parametrize("board", SIGNED, ids=str)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_weights_for_signed_bytes(kind: Kind, board: tuple[str, str]) -> None:
    weights_for(kind, *board)


@in_turn("kind, board", KINDS, WIDENED, ids=str)
def test_weights_for_processors_without_products_of_bytes(kind: str, board: tuple[str, str]) -> None:
    weights_for(KINDS[kind], *board)


def weights_for(kind: Kind, name: str, instruction: str) -> None:
    """Rows of a weight that is packed for a board, and its product, as any processor computes them."""
    on = board_for(declared()[name])
    assert on is not None
    assert WeightLayout.of(hardware=on.hardware, **kind.options).instruction == instruction
    tokens = np.array([0, 36, 5, -3, 99], np.int32)
    weight, data = weight_of(37, 128, kind), np.random.default_rng(5).normal(size=(2, 128)).astype("float32")
    data[0, :GROUP], data[-1, -1] = 0.0, 1e4
    values = dequantised(weight, kind.options)
    operations = ("quantised_rows", tokens, (5, 128)), ("quantised_dense", data, (2, 37))
    for operation, given_one, shape in operations:
        module = module_of(operation, (given_one.shape, str(given_one.dtype)), shape, weight, kind)
        model = lower(imported(module), on)
        [task] = [one for one in model.tasks if "packed" in one.name]
        call = tvm.compile(task.function.with_attr("global_symbol", "main"), target=_ANY_PROCESSOR)
        made = np.zeros(tuple(map(int, task.function.params[-1].shape)), np.float32)
        result = tvm.runtime.tensor(made)
        call["main"](*(tvm.runtime.tensor(one) for one in (given_one, *model.parameters)), result)
        made = result.numpy()[:, : shape[1]]
        if operation == "quantised_rows":
            np.testing.assert_allclose(made, values[np.clip(tokens, 0, 36)], rtol=0, atol=1e-6)
        else:
            exact = data.astype("float64") @ values.T.astype("float64")
            assert (np.abs(made - exact) <= bound(data, values, kind, on)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_gets_weights_as_they_are(kind: str) -> None:
    """Rows of them are exact; a product has the values in halves."""
    found = board_for(declared()["jetson_orin_nano"])
    assert found is not None
    jetson, weight = found.on_gpu(), weight_of(24, 128, KINDS[kind])
    values = dequantised(weight, KINDS[kind].options)
    tokens = np.array([5, 23, -1, 24], np.int32)
    data = np.random.default_rng(2).normal(size=(3, 128)).astype(np.float32)
    for name, given_one, wanted in (
        ("quantised_rows", tokens, values[[5, 23, 0, 23]]),
        ("quantised_dense", data, data @ values.astype(np.float16).astype(np.float32).T),
    ):
        shape = (given_one.shape, str(given_one.dtype))
        module = module_of(name, shape, wanted.shape, weight, KINDS[kind])
        model = lower(imported(module), jetson)
        for ours, theirs in zip(model.parameters, weight, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), theirs)
        [task] = model.tasks
        call = tvm.compile(task.function.with_attr("global_symbol", "main"), target=_ANY_PROCESSOR)
        made = tvm.runtime.tensor(np.zeros(wanted.shape, np.float32))
        call["main"](*(tvm.runtime.tensor(one) for one in (given_one, *weight)), made)
        np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_scales_are_read_in_the_type_of_the_file() -> None:
    """A scale of single precision that halves do not have."""
    numbers = np.full((16, 16), 0x99, np.uint8)
    scales = np.full((16, 1), 1 + 2.0**-20, np.float32)
    kind = KINDS["int4"]
    module = module_of("quantised_dense", ((1, 32), "float32"), (1, 16), [numbers, scales], kind)
    model = lower(imported(module), plain_board())
    data = np.zeros((1, 32), np.float32)
    data[0, 0] = 32639.0  # an activation that is rounded to itself
    found = run(model, {}, data)
    np.testing.assert_array_equal(found, np.full((1, 16), np.float32(32639.0) * scales[0, 0]))
