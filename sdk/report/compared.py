"""With what a deployment is compared: the best peer, in half a sentence, and the deployment before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from host.errors import EdgeError
from host.statistics import Estimate

if TYPE_CHECKING:
    from host.deploy import DeployResult
    from host.model.text_comparison import TextComparison

# Figures from here on are whole numbers.
_WHOLE = 100
# Below, two places behind the point say little, or nothing.
_SMALL = 0.1
_BEFORE, _AFTER = "the deployment before", "this one"


def compared_text(result: DeployResult) -> str:
    """How many times as fast as the best peer, with 95% bounds; or why nothing is compared."""
    if not result.timing.compares:
        return "with nothing: the board is simulated"
    if result.choice.backend != "tvm":
        return result.choice.why
    if result.beside is not None:
        return texts_text(result.beside)
    if not result.ratios:
        return "with nothing: no other engine was measured"
    name, (value, low, high) = min(result.ratios.items(), key=lambda one: one[1][0])
    return f"{_bounded(Estimate(value, low, high))} times as fast as {name}, the best of the peers"


def texts_text(beside: TextComparison) -> str:
    """How many times as fast as the best peers a language model writes, and reads a prompt."""
    parts = []
    for kind, what in (("decode", "writing"), ("prefill", "reading a prompt")):
        best = beside.best_peer(kind)
        parts.append(f"{_bounded(best.speedup[kind])} times as fast as {best.engine} in {what}")
    return " and ".join(parts)


def _bounded(ratio: Estimate) -> str:
    """A ratio with its bounds where it has some."""
    if ratio.low is None or ratio.high is None:
        return _times(ratio.value)
    return f"{_times(ratio.value)} ({_times(ratio.low)} to {_times(ratio.high)})"


def tokens_text(result: DeployResult) -> str:
    """How many tokens a language model decodes in a second."""
    rate = 1.0 / result.measurement.median_s
    return f"{rate:,.0f} tokens/s" if rate >= _WHOLE else f"{rate:.3g} tokens/s"


def headline(result: DeployResult) -> str:
    """The first sentence of the page: what was gained, else what was measured; "" of a simulated board."""
    if not (result.timing.compares and result.timing.decides):
        return ""
    place = f"on {result.device}, verified"
    if result.choice.backend == "tvm" and (result.ratios or result.beside is not None):
        return f"{compared_text(result)}, {place}"
    if result.context:
        return f"{tokens_text(result)} {place}"
    length = f" at length {result.lengths[-1].length}" if result.lengths else ""
    return f"{result.measurement.median_s * 1e3:.3f} ms a run{length} by {result.choice.backend} {place}"


def _times(ratio: float) -> str:
    """A ratio with the digits that a person reads."""
    return f"{ratio:,.0f}" if ratio >= _WHOLE else f"{ratio:.2f}" if ratio >= _SMALL else f"{ratio:.2g}"


def since_last(result: DeployResult, figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """The changes since the last deployment of the model to the device, as `sdk report compare` judges them.

    Args:
        result: the deployment.
        figures: of it, as `sdk deploy --json` has them.

    Returns:
        What `sdk report compare --json` writes and `reason`: why there is no comparison, or "". None where
        nothing was deployed to this place before.
    """
    from sdk.report.compare import compare, compare_json
    from sdk.report.sides import side_of_figures, side_of_manifest

    if result.replaced is None:
        return None
    if result.replaced.manifest is None:
        return {"reason": result.replaced.reason, "changes": []}
    try:
        before = side_of_manifest(_BEFORE, result.replaced.manifest, result.replaced.bundle_bytes)
        after = side_of_figures(_AFTER, figures)
    except EdgeError as error:
        return {"reason": str(error), "changes": []}
    if (before.name, before.device) != (after.name, after.device):
        return {"reason": f"{_BEFORE} was {before.name} on {before.device}", "changes": []}
    return compare_json(compare(before, after)) | {"reason": ""}
