"""Verification of a bundle's outputs on the device against those of the original runtime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from host.model import GoldenCase, Signature

if TYPE_CHECKING:
    from host.transport import KernelOutputs

# Per output: max|a-b| <= tolerance * max|golden|. Half precision has 11 bits of mantissa.
_TOLERANCE = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
DEFAULT_TOLERANCE = 1e-3
# A quantised model's golden output is one of several right ones within its spread: another may be as far to
# the other side. More than the last number is never allowed.
_SPREADS, _LARGEST = 2.0, 0.2
# Relative change of the inputs that shows how much a model enlarges it: eight roundings of single precision.
_NUDGE = 2.0**-20


@dataclass(frozen=True)
class Verification:
    """How far a bundle's outputs on the device are from the golden ones.

    Attributes:
        max_rel_err: largest max|a-b| / max|golden| over cases and outputs, or share of classes that differ.
        tolerance: of the output with the largest error relative to its tolerance.
        passed: whether every output is within its tolerance.
        message: names what differs, where and by how much; "" when passed.
        function: of a language model, the one beside main that is to blame; "" where it is main, or none is.
        remark: what the golden cases say nothing about; "" for nothing.
    """

    max_rel_err: float
    tolerance: float
    passed: bool
    message: str = ""
    function: str = ""
    remark: str = ""


class Runs(Protocol):
    """Anything that runs a loaded model: a session on a device."""

    def run(self, inputs: Sequence[np.ndarray], function: str = "") -> list[np.ndarray]:
        """Outputs for one set of inputs, by a function of a language model where one is named."""


@dataclass(frozen=True)
class Deviation:
    """How far one output of one case is off.

    Attributes:
        case: index of the golden case.
        output: index of the output.
        relative: max|a-b| / max|golden|; of classes and the like the share of elements that differ.
        tolerance: largest permitted value.
        detail: the fault if it is not a numeric difference, e.g. the shape.
        counted: how many classes there are; 0 for real numbers.
    """

    case: int
    output: int
    relative: float
    tolerance: float
    detail: str = ""
    counted: int = 0

    @property
    def excess(self) -> float:
        """The deviation divided by the tolerance; above 1 the verification fails."""
        return self.relative / self.tolerance


def relative_error(value: np.ndarray, golden: np.ndarray) -> float:
    """max|value-golden| / max|golden|; infinite where exactly one of them is not a number.

    A golden output of zeros only is compared against 1.
    """
    if golden.size == 0:
        return 0.0
    a = value.astype(np.float64)
    b = golden.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if bool(same.all()):
        return 0.0
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    worst = float(difference.max())
    return worst / scale if math.isfinite(worst) else math.inf


def deviation(
    case: int,
    output: int,
    value: np.ndarray,
    golden: np.ndarray,
    spread: float = 0.0,
    share: float | None = None,
) -> Deviation:
    """Compare one output with its golden value; a wrong shape or type is infinitely far.

    Args:
        case: index of the golden case.
        output: index of the output.
        value: of the device.
        golden: expected value.
        spread: of the golden case.
        share: of the golden case, for classes and other whole numbers, which are counted; None for numbers
            whose distance is judged.
    """
    tolerance = _TOLERANCE.get(str(golden.dtype), DEFAULT_TOLERANCE)
    tolerance = max(tolerance, min(_SPREADS * spread, _LARGEST))
    if share is not None:
        # At least half an element, so that none may differ where nothing is known to.
        tolerance = max(min(_SPREADS * share, _LARGEST), 0.5 / max(golden.size, 1))
    if value.shape != golden.shape:
        return Deviation(case, output, math.inf, tolerance, f"shape {value.shape} instead of {golden.shape}")
    if value.dtype != golden.dtype:
        return Deviation(case, output, math.inf, tolerance, f"type {value.dtype} instead of {golden.dtype}")
    if share is not None:
        differing = float((value != golden).mean()) if golden.size else 0.0
        return Deviation(case, output, differing, tolerance, counted=golden.size)
    return Deviation(case, output, relative_error(value, golden), tolerance)


def verify(session: Runs, signature: Signature, golden: Sequence[GoldenCase]) -> tuple[Verification, int]:
    """Run every golden case on the device and compare every output.

    A function beside main changes the state that the cases behind it read, so that it is to blame where these
    are the first that fail. None runs on a state that is wrong already.

    Returns:
        The verdict, and the index of the case with the largest error.

    Raises:
        DeviceError: the device or its executor went away.
        EngineError: the engine refused the model.
    """
    worst = Deviation(0, 0, 0.0, DEFAULT_TOLERANCE)
    largest, behind, unseen = 0.0, "", ""
    for index, case in enumerate(golden):
        if case.function and worst.excess > 1.0:
            break
        behind = case.function or behind
        outputs = session.run(case.inputs, case.function) if case.function else session.run(case.inputs)
        if not case.outputs:
            # Cases behind it show what it has done to the state.
            unseen = case.function
            continue
        if len(outputs) != len(case.outputs):
            message = f"{len(outputs)} outputs instead of {len(case.outputs)}"
            return Verification(math.inf, DEFAULT_TOLERANCE, False, message, behind), index
        for position, (value, reference) in enumerate(zip(outputs, case.outputs, strict=True)):
            found = deviation(
                index, position, np.asarray(value), reference, case.spread, case.share(position)
            )
            largest = max(largest, found.relative)
            if found.excess > worst.excess:
                worst = found
    if worst.excess <= 1.0:
        remark = untold(signature, golden)
        return Verification(largest, worst.tolerance, True, remark=remark), worst.case
    message = _describe(worst, signature) + (f"; the function {behind} is wrong" if behind else "")
    message += f", or {unseen}, whose state it reads" if unseen not in ("", behind) else ""
    return Verification(largest, worst.tolerance, False, message, behind), worst.case


def untold(signature: Signature, golden: Sequence[GoldenCase]) -> str:
    """A line about outputs that are one number throughout, so that a wrong program may give them too.

    Args:
        signature: of the model.
        golden: its cases; those of functions beside main are not looked at.

    Returns:
        "" where every case says something about every output.
    """
    cases = [case.outputs for case in golden if case.outputs and not case.function]
    found = []
    for position, spec in enumerate(signature.outputs):
        values = (outputs[position] for outputs in cases)
        flat = [value.flat[0] for value in values if _is_one_number(value)]
        if flat:
            where = "all" if len(flat) == len(cases) else f"{len(flat)} of {len(cases)}"
            numbers = {f"{float(one):g}" for one in flat}
            what = numbers.pop() if len(numbers) == 1 else "one number, not always the same,"
            found.append(f"output {spec.name!r} is {what} throughout in {where} of the golden cases")
    if not found:
        return ""
    more = f", and {len(found) - 1} more are such" if len(found) > 1 else ""
    return f"{found[0]}{more}: there, the verification says nothing"


def _is_one_number(value: np.ndarray) -> bool:
    """Whether an array has several elements that are all the same."""
    if value.size < 2 or value.dtype.kind not in "biuf":
        return False
    first = value.flat[0]
    return bool((value == first).all() or (value != value).all())


def sensitivity(session: Runs, case: GoldenCase) -> float:
    """How far the outputs move when every floating-point input is off by about one part in a million.

    A model that moves by more than the tolerance is not determined by its arithmetic in single precision: no
    two engines agree on it, however right each of them is.

    Args:
        session: with the model loaded.
        case: the inputs.

    Returns:
        The largest max|a-b| / max|a| over outputs; 0 for inputs of integers alone.
    """
    signs = np.random.default_rng(0)
    moved = tuple(
        (value * (1.0 + signs.choice((-_NUDGE, _NUDGE), value.shape))).astype(value.dtype)
        if np.issubdtype(value.dtype, np.floating)
        else value
        for value in case.inputs
    )
    before, after = (session.run(inputs) for inputs in (case.inputs, moved))
    return max(
        (relative_error(np.asarray(b), np.asarray(a)) for a, b in zip(before, after, strict=True)),
        default=0.0,
    )


def _describe(worst: Deviation, signature: Signature) -> str:
    name = signature.outputs[worst.output].name
    if worst.counted and not worst.detail:
        differing, most = round(worst.relative * worst.counted), int(worst.tolerance * worst.counted)
        what = f"{differing} of {worst.counted} elements, allowed are {most}"
        return f"output {name!r} differs in {what} (case {worst.case + 1})"
    far, allowed = _told_apart(worst.relative, worst.tolerance)
    amount = worst.detail or f"differs by {far} of the largest golden value, allowed is {allowed}"
    if worst.tolerance >= _LARGEST and not worst.detail:
        amount += ", as its original runtime's own ways of computing it hardly determine it"
    return f"output {name!r} {amount} (case {worst.case + 1})"


def _told_apart(larger: float, smaller: float) -> tuple[str, str]:
    """Two numbers with two digits, or as many as show that they differ."""
    for digits in range(2, 17):
        shown = f"{larger:.{digits}g}", f"{smaller:.{digits}g}"
        if shown[0] != shown[1]:
            break
    return shown


def first_difference(
    ours: Iterable[KernelOutputs], reference: Iterable[KernelOutputs], spread: float = 0.0
) -> str:
    """Name the first kernel whose outputs differ between two runs of the same module.

    Args:
        ours: the outputs of each kernel call of the compiled model, in order.
        reference: the same of the module with unscheduled kernels.
        spread: of the golden case.
    """
    for mine, theirs in zip(ours, reference, strict=False):
        if mine.kernel != theirs.kernel:
            return f"call {mine.index + 1} is {mine.kernel}, unscheduled it is {theirs.kernel}"
        for value, golden in zip(mine.values, theirs.values, strict=True):
            found = deviation(0, 0, value, golden, spread)
            if found.excess > 1.0:
                amount = found.detail or f"off by {found.relative:.2g}"
                return f"the values part first at kernel {mine.kernel} (call {mine.index + 1}, {amount})"
    if spread:
        return (
            "unscheduled kernels give the same values: what is rounded beside the weights moves the outputs "
            "so far, or the lowering is at fault: deploy the model in float32"
        )
    return "unscheduled kernels give the same values: the lowering is at fault, not a kernel"
