"""With what a deployment is compared: the best peer, in half a sentence, and the deployment before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from host.errors import EdgeError

if TYPE_CHECKING:
    from host.deploy import DeployResult

_BEFORE, _AFTER = "the deployment before", "this one"


def compared_text(result: DeployResult) -> str:
    """How many times as fast as the best peer, with 95% bounds; or why nothing is compared."""
    if not result.timing.compares:
        return "with nothing: the board is simulated"
    if result.choice.backend != "tvm":
        return result.choice.why
    if not result.ratios:
        return "with nothing: no other engine was measured"
    name, (value, low, high) = min(result.ratios.items(), key=lambda one: one[1][0])
    return f"{value:.2f} ({low:.2f} to {high:.2f}) times as fast as {name}, the best of the peers"


def headline(result: DeployResult) -> str:
    """The first sentence of the page; "" where there is no such figure."""
    if not result.timing.compares or result.choice.backend != "tvm" or not result.ratios:
        return ""
    return f"{compared_text(result)}, on {result.device}, verified"


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
