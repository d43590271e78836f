"""Selection of the backend that is installed, by the 95% bounds of a comparison with the other engines.

The default is the user's own library: the compiled model takes its place where the bound of the paired ratio
shows that it is better, and an engine of the board's system where it is shown to be better than both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from device_agent.contract.manifest import OF_THE_BOARD
from host.compare.entrants import EntrantResult, ratio_between
from host.compare.selection import PHRASES, below_cap
from host.errors import EngineError, MeasureError, VerifyError
from host.options import BACKENDS, Backend
from host.statistics import MIN_TRIALS, Estimate

if TYPE_CHECKING:
    from host.compare.comparison import EngineComparison


@dataclass(frozen=True)
class Choice:
    """Which backend was installed and why.

    Attributes:
        backend: one of `BACKENDS`.
        why: one sentence.
        ratio: the peer's figure over that of the compiled model, with 95% bounds (low, high); None if not
            compared.
    """

    backend: Backend
    why: str
    ratio: tuple[float, float, float] | None = None


def select_backend(
    comparison: EngineComparison,
    backend: str,
    objective: str,
    cap_w: float | None,
    fallback: str,
) -> Choice:
    """Select the verified backend to install.

    `auto` selects the compiled model only if the 95% bound of the comparison shows that it is better than the
    user's library, which stays otherwise. An engine of the board's system (TensorRT) takes their place where
    the bounds show that it is better than each of them that may be installed. The same holds without the
    compiled model.

    Args:
        comparison: of the engines.
        backend: that the user requests, or "auto".
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts of a peer; None for no limit.
        fallback: why there is no compiled model; "" if there is.

    Raises:
        VerifyError: nothing that may be installed gives the right outputs.
        EngineError: no engine of the device can run the model.
        MeasureError: the objective needs energy and the device cannot measure it, or no engine is known to
            stay below the cap.
    """
    results = comparison.results
    verified = [name for name in BACKENDS if _may_be_installed(results.get(name))]
    if backend != "auto":
        asked = next((name for name in verified if name == backend), None)
        if asked is None:
            raise _refusal(results, backend, fallback)
        rivals = [name for name in verified if name != asked]
        ratio = None
        if asked == "tvm" and rivals:
            ratio = _bounds(_ratio(results, rivals[0], "tvm", objective))
        return Choice(asked, f"--backend {asked}", ratio)
    if not verified:
        raise _refusal(results, next(iter(results), "tvm"), fallback)
    allowed = [name for name in verified if name == "tvm" or below_cap(results[name], cap_w)]
    # The compiled model was held against the cap when its variant was selected.
    if not allowed:
        raise MeasureError(
            f"--power-cap {cap_w:g}: {_why_not_ours(results, fallback)}, and no other engine is known to "
            f"stay below it ({_watts(results, verified)}): allow more, or set a lower power mode"
        )
    if "tvm" not in allowed:
        return _without_ours(results, allowed, objective, _why_not_ours(results, fallback))
    rivals = [name for name in allowed if name != "tvm"]
    if not rivals:
        only = "the only verified backend for this format"
        return Choice(
            "tvm", only if verified == ["tvm"] else f"no other verified backend stays below {cap_w:g} W"
        )
    ratios = {name: _ratio(results, name, "tvm", objective) for name in rivals}
    lengths = len(comparison.each) if objective == "latency" else 1
    own = [name for name in rivals if name not in OF_THE_BOARD]
    board = [name for name in rivals if name in OF_THE_BOARD]
    better = _shown_better(results, board, ["tvm", *own], objective)
    rival = min(better or own or board, key=lambda name: ratios[name].value)
    if rival in OF_THE_BOARD and not better:
        return _ours_stays(rival, ratios[rival], objective)
    return _decided(rival, ratios[rival], objective, lengths)


def _without_ours(
    results: Mapping[str, EntrantResult], allowed: Sequence[Backend], objective: str, why: str
) -> Choice:
    """The engine to install where there is no compiled model: the user's library is the default."""
    own = [name for name in allowed if name not in OF_THE_BOARD]
    board = [name for name in allowed if name in OF_THE_BOARD]
    among = _shown_better(results, board, own, objective) or own
    if len(among) == 1:
        return Choice(among[0], why)
    values = {name: value for name in among if (value := results[name].value(objective)) is not None}
    if not values:
        raise MeasureError(
            f"--objective {objective}: {why}, and no other engine has that figure; use latency"
        )
    return Choice(min(values, key=lambda name: values[name]), why)


def _shown_better(
    results: Mapping[str, EntrantResult], board: Sequence[Backend], others: Sequence[Backend], objective: str
) -> list[Backend]:
    """The engines of the board whose bounds show that each is better than all of the others."""
    return [
        name for name in board if all(_ratio(results, name, other, objective).shown_less for other in others)
    ]


def _watts(results: Mapping[str, EntrantResult], names: Sequence[Backend]) -> str:
    known = {name: results[name].mean_w for name in names}
    return ", ".join(
        f"{name} {'unknown' if watts is None else f'{watts:.2f} W'}" for name, watts in known.items()
    )


def _ours_stays(rival: Backend, ratio: Estimate, objective: str) -> Choice:
    word = f"tvm {PHRASES[objective].engine}" if ratio.shown_more else "no difference shown, so tvm stays"
    return Choice("tvm", f"{word}: {_shown(rival, ratio)}", _bounds(ratio))


def _shown(rival: Backend, ratio: Estimate) -> str:
    return f"{rival} / tvm = {ratio.value:.2f}, 95% bound {ratio.low:.2f} to {ratio.high:.2f}"


def _decided(rival: Backend, ratio: Estimate, objective: str, lengths: int) -> Choice:
    shown = _shown(rival, ratio)
    if lengths > 1:
        shown += f", geometric mean over {lengths} lengths"
    word = PHRASES[objective].engine
    if ratio.shown_more:
        return Choice("tvm", f"tvm {word}: {shown}", _bounds(ratio))
    if ratio.shown_less:
        return Choice(rival, f"{rival} {word}: {shown}", _bounds(ratio))
    return Choice(rival, f"no difference shown, so the library stays: {shown}", _bounds(ratio))


def _bounds(ratio: Estimate) -> tuple[float, float, float]:
    assert ratio.low is not None and ratio.high is not None
    return ratio.value, ratio.low, ratio.high


def _ratio(results: Mapping[str, EntrantResult], rival: str, other: str, objective: str) -> Estimate:
    """The rival's figure over that of another engine, with bounds.

    Raises:
        MeasureError: the device has no such figure, or too few repetitions for a bound.
    """
    theirs, default = results[rival], results[other]
    for one in (theirs, default):
        if objective != "latency" and one.energy is not None and one.energy.gross_j is None:
            raise MeasureError(
                f"--objective {objective}: the device has no energy figure ({one.energy.source}); use latency"
            )
    ratio = ratio_between(theirs, default, objective)
    if ratio is None or not ratio.bounded:
        pairs = 0 if ratio is None else ratio.n
        raise MeasureError(
            f"--objective {objective}: {rival} and {other} have {pairs} figures that can be compared, and a "
            f"95% bound needs {MIN_TRIALS}; measure again, or use latency"
        )
    return ratio


def _may_be_installed(one: EntrantResult | None) -> bool:
    return (
        one is not None
        and one.deployable
        and one.measurement is not None
        and one.verification is not None
        and one.verification.passed
    )


def require_verified(results: Mapping[str, EntrantResult], backend: str) -> None:
    """Refuse to continue without figures of a verified backend.

    Raises:
        VerifyError: its outputs are wrong.
        EngineError: it could not run.
    """
    if results[backend].measurement is None:
        raise _refusal(results, backend, "")


def _why_not_ours(results: Mapping[str, EntrantResult], fallback: str) -> str:
    if fallback:
        return f"tvm cannot compile it: {fallback}"
    ours = results.get("tvm")
    if ours is None:
        return "tvm was not asked for"
    if ours.verification is not None and not ours.verification.passed:
        return f"tvm gives wrong outputs: {ours.verification.message}"
    return f"tvm cannot run it: {ours.reason}"


def _refusal(results: Mapping[str, EntrantResult], backend: str, fallback: str) -> EngineError | VerifyError:
    one = results.get(backend)
    if one is None:
        reason = fallback if backend == "tvm" and fallback else "it does not read this model's format"
        return EngineError(f"backend {backend} cannot run the model: {reason}; use --backend auto")
    if one.verification is not None and not one.verification.passed:
        return VerifyError(f"backend {backend}: {one.verification.message}; nothing was installed")
    if one.measurement is not None and not one.deployable and backend in OF_THE_BOARD:
        return EngineError(
            f"backend {backend} can be measured here, but not installed (TensorRT needs its Python package "
            "on the board, python3-libnvinfer): use --backend auto"
        )
    others = "; ".join(f"{name}: {c.reason}" for name, c in results.items() if c.reason)
    also = f" (tvm: {fallback})" if fallback and backend != "tvm" else ""
    why = others or one.reason or f"{backend} runs another file of it, which is not installed"
    return EngineError(f"no engine of the device can run the model: {why}{also}")
