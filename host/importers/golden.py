"""Golden cases: inputs under which the original runtime's outputs differ from case to case."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from host.engines import run_reference
from host.errors import EngineError, ModelFileError
from host.importers.random_inputs import STYLES, InputRange, draw
from host.model import GoldenCase
from host.model.signature import is_whole

# Outputs closer than this, relative to their largest value, would let a constant pass the verification.
_DIFFERENCE = 1e-2
# Outputs of the original runtime that part by more than this from the unoptimised ones are unstable.
# Networks of sane weights are at 1e-7 to 1e-5.
_UNSTABLE = 5e-5
# Another engine rounds everywhere, the optimised graph in a few places only. With twice that, which the
# verification allows, engines may part ten times as far: where it was looked at, they did up to eight times.
_ENGINES = 5.0
# Farther apart than roundings bring outputs, so the model is run once more in the same way.
_RANDOM = 0.05
# With more of its classes undecided between the ways of the original, an output says nothing of another way:
# the verification allows twice the share, up to a fifth.
_UNDECIDED = 0.1
_MANY = 1000
_SAMPLE_BYTES = 2
# How often the inputs of a quantised model are moved, and by how much: eight roundings.
_MOVED, _NUDGE = 3, 2.0**-20
# More inputs that are tried where some are unstable, times the number of cases.
_MORE = 2


Reference = Callable[[str, Path, Sequence[Sequence[np.ndarray]]], list[list[np.ndarray]]]


@dataclass(frozen=True)
class GoldenOptions:
    """How golden cases are made.

    Attributes:
        seed: of the inputs.
        cases: number of cases, at least 1.
        samples: inputs to use instead of drawn ones, one sequence per case.
        reference: runs a model file in an engine.
        unoptimised: runs it without the engine's graph optimisations, to see how stable the outputs are; None
            where the engine has no such way.
        meanwhile: called with the model's module (an IRModule) while the original is run.
    """

    seed: int = 0
    cases: int = 3
    samples: Sequence[Sequence[np.ndarray]] | None = None
    reference: Reference = run_reference
    unoptimised: Reference | None = None
    meanwhile: Callable[[Any], object] = lambda module: None


def make_golden(
    engine: str, path: Path, ranges: Sequence[InputRange], options: GoldenOptions
) -> tuple[GoldenCase, ...]:
    """Draw inputs and run the original on them, again with other inputs while the outputs hardly differ.

    Args:
        engine: the original runtime.
        path: a file that it reads.
        ranges: the model's inputs, in order.
        options: seed, number, and who runs the original.

    Returns:
        The cases of the first style of inputs whose outputs differ enough, or of the best such style (a model
        may have outputs that do not depend on its inputs). Inputs under which the outputs are unstable are
        replaced by others, as far as there are such.

    Raises:
        EngineError: the runtime cannot run the model with any of the inputs.
        ModelFileError: the outputs change from run to run.
    """
    if options.samples is not None:
        given = _cases(options.samples, options.reference(engine, path, options.samples))
        # One says whether random numbers are drawn: samples may be many.
        _check_repeats(engine, path, given[:1], options.reference)
        return given
    golden, attempt = _drawn(engine, path, ranges, options)
    if options.unoptimised is None:
        return golden
    try:
        return _stable(engine, path, ranges, options, options.unoptimised, golden, attempt)
    except EngineError:
        # The engine cannot do without its graph optimisations: nothing is known of the stability.
        return golden


def _drawn(
    engine: str, path: Path, ranges: Sequence[InputRange], options: GoldenOptions
) -> tuple[tuple[GoldenCase, ...], int]:
    """The cases of the best style of inputs, and the number of that style."""
    best: tuple[tuple[bool, int], tuple[GoldenCase, ...], int] | None = None
    failure: EngineError | None = None
    for attempt, style in enumerate(STYLES):
        generator = np.random.default_rng([options.seed, attempt])
        inputs = [draw(ranges, style, generator) for _ in range(options.cases)]
        try:
            outputs = options.reference(engine, path, inputs)
        except EngineError as error:
            failure = failure or error
            if not _open_integers(ranges):
                break  # other inputs of the same kind will not be accepted either
            continue
        golden = _cases(inputs, outputs)
        score = _score(golden)
        if best is None or score > best[0]:
            best = (score, golden, attempt)
        if score == (True, len(golden[0].outputs)):
            break
        if not any(entry.spec.shape != () or entry.spec.dtype for entry in ranges):
            break  # no inputs, nothing to draw
    if best is None:
        raise failure or EngineError(f"{path.name}: {engine} gave no outputs")
    return best[1], best[2]


def _stable(
    engine: str,
    path: Path,
    ranges: Sequence[InputRange],
    options: GoldenOptions,
    unoptimised: Reference,
    golden: tuple[GoldenCase, ...],
    attempt: int,
) -> tuple[GoldenCase, ...]:
    """Cases whose outputs a change of rounding hardly moves, where there are such inputs.

    Some networks, mostly those that were never trained, enlarge roundings until engines part visibly. Their
    other inputs are tried, the most stable ones are taken, and what is left is the spread of the case.
    """
    partings = _partings(golden, engine, path, unoptimised)
    unstable = any(one.spread > _UNSTABLE or one.undecided for one in partings)
    if unstable and any(entry.value is None for entry in ranges):
        generator = np.random.default_rng([options.seed, attempt, 1])
        inputs = [draw(ranges, STYLES[attempt], generator) for _ in range(_MORE * options.cases)]
        more = _cases(inputs, options.reference(engine, path, inputs))
        golden, partings = golden + more, partings + _partings(more, engine, path, unoptimised)
    order = sorted(range(len(golden)), key=lambda index: (partings[index].undecided, partings[index].spread))
    order = order[: options.cases]
    if max(partings[index].spread for index in order) > _RANDOM:
        _check_repeats(engine, path, [golden[index] for index in order], options.reference)
    order.sort()
    return _with_margins([golden[index] for index in order], [partings[index] for index in order])


def _with_margins(golden: Sequence[GoldenCase], partings: Sequence[_Parting]) -> tuple[GoldenCase, ...]:
    """Cases of a model in floats, with what their spreads and shares allow another engine.

    In an output of many whole numbers, such as an image, some lie between two steps, in one case more of them
    than in another by chance: there each case has what the worst one allows.
    """
    cases = []
    for case, parting in zip(golden, partings, strict=True):
        spread = _ENGINES * parting.spread if parting.spread > _UNSTABLE else 0.0
        shares = list(parting.shares)
        for place, (share, value) in enumerate(zip(shares, case.outputs, strict=True)):
            if share is not None and value.size >= _MANY:
                others = (one.shares[place] or 0.0 for one in partings)
                shares[place] = max(share, min(_ENGINES * max(others), _UNDECIDED))
        cases.append(replace(case, spread=spread, shares=tuple(shares)))
    return tuple(cases)


def with_margins(
    golden: Sequence[GoldenCase], engine: str, path: Path, unoptimised: Reference
) -> tuple[GoldenCase, ...]:
    """Given cases of a model in floats; of those whose outputs a change of rounding moves with a spread.

    Nothing is known of it where the engine cannot do without its graph optimisations.
    """
    try:
        partings = _partings(golden, engine, path, unoptimised)
    except EngineError:
        return tuple(golden)
    return _with_margins(golden, partings)


def _check_repeats(engine: str, path: Path, golden: Sequence[GoldenCase], reference: Reference) -> None:
    """Refuse a model that draws random numbers, of which nothing can be verified.

    Raises:
        ModelFileError: the same inputs give other outputs in the same engine.
    """
    apart = max((one.spread for one in _partings(golden, engine, path, reference)), default=0.0)
    if apart > _RANDOM:
        raise ModelFileError(
            f"{path.name}: its outputs differ from run to run under the same inputs, by {apart:.0%} of "
            "the largest value, so they cannot be verified: export it without random numbers, or with these "
            "as inputs"
        )


class _Parting(NamedTuple):
    """How far two ways of computing a case part: `spread` and `shares` of `GoldenCase`."""

    spread: float
    shares: tuple[float | None, ...]

    @property
    def undecided(self) -> bool:
        """Whether an output of classes says nothing of another way."""
        return max((one for one in self.shares if one is not None), default=0.0) > _UNDECIDED

    def beyond(self, other: _Parting) -> _Parting:
        """The farther of two, by output."""
        shares = zip(self.shares, other.shares, strict=True)
        return _Parting(
            max(self.spread, other.spread),
            tuple(None if a is None or b is None else max(a, b) for a, b in shares),
        )


def _stands_in_floats(place: int, dtype: np.dtype) -> bool:
    """In a model in floats, integers are classes and the like; those of 16 bits may be samples of sound."""
    return dtype.kind not in "iub" or dtype.itemsize == _SAMPLE_BYTES


def _partings(
    golden: Sequence[GoldenCase],
    engine: str,
    path: Path,
    unoptimised: Reference,
    stands: Callable[[int, np.dtype], bool] = _stands_in_floats,
) -> tuple[_Parting, ...]:
    """How far the outputs of each case are from those without graph optimisations.

    Args:
        golden: the cases.
        engine: the original runtime.
        path: of the model.
        unoptimised: runs it in the other way.
        stands: whether an output of an index and a type stands for real numbers.
    """
    others = unoptimised(engine, path, [case.inputs for case in golden])
    made = []
    for case, outputs in zip(golden, others, strict=True):
        real = [stands(place, value.dtype) for place, value in enumerate(case.outputs)]
        pairs = list(zip(case.outputs, outputs, real, strict=True))
        spread = max((relative_distance(a, b) for a, b, stands_for in pairs if stands_for), default=0.0)
        made.append(_Parting(spread, tuple(None if stood else differing(a, b) for a, b, stood in pairs)))
    return tuple(made)


def differing(golden: np.ndarray, other: np.ndarray) -> float:
    """The share of elements that differ; all do where the shapes do."""
    if golden.shape != other.shape:
        return 1.0
    return float((golden != other).mean()) if golden.size else 0.0


def _cases(
    inputs: Sequence[Sequence[np.ndarray]], outputs: Sequence[Sequence[np.ndarray]]
) -> tuple[GoldenCase, ...]:
    return tuple(GoldenCase(tuple(given), tuple(made)) for given, made in zip(inputs, outputs, strict=True))


def with_spread(
    golden: Sequence[GoldenCase],
    engine: str,
    path: Path,
    unoptimised: Reference,
    other: Path | None = None,
    whole: Collection[int] = (),
) -> tuple[GoldenCase, ...]:
    """The cases with the spread of the original runtime: with graph optimisations against without them.

    In a quantised model a sum that lies between two steps falls to either side by the order of its additions,
    and later layers enlarge the difference. The original runtime computes such a model in two ways, with
    dequantised numbers or fused in integers, and how far these part is how well the model defines its result.
    Where both ways add in the same order, as they do in layers that find their scales while they run, sums
    that lie between two steps show under inputs that are off by a few roundings, or under such weights.
    Whole numbers stay: they may be positions or masks, and of other ones nothing can be learnt.

    Args:
        golden: cases of the model.
        engine: the original runtime.
        path: of the model.
        unoptimised: runs it without graph optimisations.
        other: a file of the model in another form: with weights that are off by a few roundings, for one
            without real inputs, or one that computes in real numbers.
        whole: outputs of up to 16 bits that stand for no real numbers, by index: classes and the like. Wider
            ones do not in any case.

    Raises:
        EngineError: the runtime cannot run the model without graph optimisations.
    """

    def stands(place: int, dtype: np.dtype) -> bool:
        return dtype.kind not in "iub" or not (place in whole or is_whole(dtype))

    real = any(is_moved(value) for case in golden for value in case.inputs)
    more = [
        replace(case, inputs=moved_by_roundings(case.inputs, np.random.default_rng([number, place])))
        for number in range(_MOVED if real else 0)
        for place, case in enumerate(golden)
    ]
    found = [*_partings(golden, engine, path, unoptimised, stands)]
    # Many cases may take too long, and another file may have operators in a form that the runtime refuses.
    with contextlib.suppress(EngineError):
        found += _partings(more, engine, path, unoptimised, stands) if more else ()
    if other is not None:
        with contextlib.suppress(EngineError):
            found += _partings(golden, engine, other, run_unoptimised, stands)
    farthest = [reduce(_Parting.beyond, found[place :: len(golden)]) for place in range(len(golden))]
    # Whether a sum lies between two steps is chance, and there are few cases: where one shows none, there may
    # be some.
    spread = max(one.spread for one in farthest)
    return tuple(
        replace(case, spread=spread, shares=one.shares) for case, one in zip(golden, farthest, strict=True)
    )


def decided(golden: Sequence[GoldenCase]) -> tuple[GoldenCase, ...]:
    """The cases whose classes the original runtime gives in each of its ways, or all where none is such.

    Args:
        golden: cases with their shares.
    """
    kept = [one for one in golden if not _Parting(one.spread, one.shares).undecided]
    return tuple(kept or golden)


def moved_by_roundings(
    arrays: Sequence[np.ndarray], generator: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Arrays whose real numbers are off by a few roundings, to either side."""
    return tuple(
        (value * (1.0 + generator.choice((-_NUDGE, _NUDGE), value.shape))).astype(value.dtype)
        if is_moved(value)
        else value
        for value in arrays
    )


def is_moved(array: np.ndarray) -> bool:
    """Whether numbers are real: none of an array of whole ones is nearly right."""
    return array.dtype.kind == "f" and bool((array != np.rint(array)).any())


def run_unoptimised(
    engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]
) -> list[list[np.ndarray]]:
    """Outputs of a model file for each set of inputs, without the engine's graph optimisations."""
    return run_reference(engine, path, inputs, unoptimised=True)


def relative_distance(golden: np.ndarray, other: np.ndarray) -> float:
    """max|golden-other| / max|golden| of floats and of integers of up to 16 bits; 0 of anything else."""
    if golden.dtype.kind not in "fiu" or golden.size == 0 or is_whole(golden.dtype):
        return 0.0
    a, b = np.nan_to_num(golden.astype(np.float64)), np.nan_to_num(other.astype(np.float64))
    return float(np.abs(a - b).max() / (np.abs(a).max() or 1.0))


def _open_integers(ranges: Sequence[InputRange]) -> bool:
    """Whether an integer input may have been out of a range that the model does not state."""
    return any(
        entry.high is None and entry.value is None and not entry.mask and "int" in entry.spec.dtype
        for entry in ranges
    )


def _score(golden: Sequence[GoldenCase]) -> tuple[bool, int]:
    """Whether all outputs are finite, and how many differ between every two cases."""
    pairs = list(combinations(golden, 2))
    differing = sum(
        all(_differ(a.outputs[index], b.outputs[index]) for a, b in pairs)
        for index in range(len(golden[0].outputs))
    )
    return all(all_finite(value) for case in golden for value in case.outputs), differing


def all_finite(values: np.ndarray) -> bool:
    """Whether no element is infinite or no number."""
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _differ(first: np.ndarray, second: np.ndarray) -> bool:
    if first.shape != second.shape:
        return True
    if first.size == 0:
        return False
    if first.dtype.kind in "iub":
        return not np.array_equal(first, second)
    a, b = np.nan_to_num(first.astype(np.float64)), np.nan_to_num(second.astype(np.float64))
    return bool(np.abs(a - b).max() > _DIFFERENCE * np.abs(a).max())
