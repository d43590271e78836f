"""With what a deployment is compared, in half a sentence: a page begins and a terminal ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdk.text import simulation

if TYPE_CHECKING:
    from host.deploy import DeployResult


def compared_text(result: DeployResult) -> str:
    """How many times as fast as the best peer, with 95% bounds; or why nothing is compared."""
    if simulation(result.device, result.emulated):
        return "with nothing: the board is simulated"
    if result.choice.backend != "tvm":
        return result.choice.why
    if not result.ratios:
        return "with nothing: no other engine was measured"
    name, (value, low, high) = min(result.ratios.items(), key=lambda one: one[1][0])
    return f"{value:.2f} ({low:.2f} to {high:.2f}) times as fast as {name}, the best of the peers"


def headline(result: DeployResult) -> str:
    """The first sentence of the page; "" where there is no such figure."""
    if simulation(result.device, result.emulated) or result.choice.backend != "tvm" or not result.ratios:
        return ""
    return f"{compared_text(result)}, on {result.device}, verified"
