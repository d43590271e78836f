"""Models that are installed on a device, measured again.

Each is compared with the figure of its installation, and with the version that a roll-back would make active.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from device_agent.contract.limits import LIMITS
from device_agent.contract.tensors import numpy_type
from device_agent.contract.text import printable
from host.calibration.drift import TOLERANCE
from host.compare.entrants import ratio_between
from host.compare.runner import Effort, compare_sessions
from host.errors import BundleError, EngineError, MeasureError, SessionLost
from host.manifest import Manifest
from host.records.choice import CLOSE
from host.statistics import Estimate, mean_of, ratio_of, spread_of

if TYPE_CHECKING:
    from host.transport import Device

_EFFORT = Effort(rounds=10, windows=0, round_s=0.2)
_ACTIVE, _EARLIER = "active", "earlier"
_MOST_MODELS = 32
_MOST_INPUT_BYTES = 256 << 20
_MOST_ROUNDS = 1000


@dataclass(frozen=True)
class DeployedModel:
    """The active version of a model, measured again.

    Attributes:
        name: of the bundle.
        version: that is active.
        latency_s: of one run now, with 95% bounds; None if it was not measured.
        since_installed: seconds now to those of the installation; None where the bundle has no figure.
        earlier: the version that a roll-back would make active; "" without one.
        over_earlier: seconds of the active version to those of the earlier one, measured in turn.
        reason: why something was not measured; "" otherwise.
    """

    name: str
    version: str
    latency_s: Estimate | None = None
    since_installed: Estimate | None = None
    earlier: str = ""
    over_earlier: Estimate | None = None
    reason: str = ""

    @property
    def slower(self) -> bool:
        """Whether it is shown to be slower than at its installation, by more than a drift's tolerance."""
        low = self.since_installed.low if self.since_installed is not None else None
        return low is not None and low > TOLERANCE

    @property
    def earlier_is_faster(self) -> bool:
        """Whether the earlier version is shown to be faster, by more than noise: a roll-back helps."""
        ratio = self.over_earlier
        return ratio is not None and ratio.shown_more and ratio.value > CLOSE


def measure_deployed(device: Device) -> tuple[DeployedModel, ...]:
    """Measure the active version of every model on a device, in turn with the earlier one if there is one.

    Args:
        device: connected; nothing else should run on it.

    Raises:
        DeviceError: it went away.
    """
    installed = device.bundles()
    active = [one for one in installed if one["active"]][:_MOST_MODELS]
    earlier = {one["name"]: one for one in installed if one["earlier"] and not one["active"]}
    return tuple(_measured(device, one, earlier.get(one["name"])) for one in active)


def _measured(device: Device, active: dict[str, Any], earlier: dict[str, Any] | None) -> DeployedModel:
    name, version = active["name"], active["version"]
    before = "" if earlier is None else earlier["version"]
    try:
        manifest = _manifest(active)
        inputs = _inputs(manifest)
        entrants = {_ACTIVE: (active, manifest)}
        reason = ""
        if earlier is not None:
            try:
                other = _manifest(earlier)
                if other.signature != manifest.signature:
                    raise MeasureError("it has other inputs")
                entrants[_EARLIER] = earlier, other
            except MeasureError as error:
                reason = f"the earlier version is not measured: {error}"
        results, failed = _compared(device, entrants, inputs)
    except (BundleError, EngineError, MeasureError, SessionLost) as error:
        return DeployedModel(name, version, earlier=before, reason=str(error))
    found = results[_ACTIVE]
    if not found.rounds_s:
        return DeployedModel(name, version, earlier=before, reason=found.reason or "it gave no times")
    if not found.trusted:
        return DeployedModel(name, version, earlier=before, reason="the device throttles")
    rounds = _rounds_at_installation(manifest)
    other_result = results.get(_EARLIER)
    counts = other_result is not None and other_result.rounds_s and other_result.trusted
    return DeployedModel(
        name,
        version,
        mean_of(found.rounds_s),
        ratio_of(spread_of(found.rounds_s), spread_of(rounds)) if rounds else None,
        before,
        ratio_between(found, other_result) if counts and other_result is not None else None,
        reason or failed,
    )


def _compared(
    device: Device,
    entrants: Mapping[str, tuple[dict[str, Any], Manifest]],
    inputs: Sequence[np.ndarray],
) -> tuple[dict[str, Any], str]:
    """The figures by entrant, and why the earlier version has none."""
    failed = ""
    with ExitStack() as opened:
        sessions = {}
        for key, (entry, manifest) in entrants.items():
            try:
                session = opened.enter_context(
                    device.open_session(manifest.backend, threads=manifest.threads)
                )
                session.load_installed(entry["path"])
                sessions[key] = session
            except (BundleError, EngineError, SessionLost) as error:
                if key == _ACTIVE:
                    raise
                failed = f"the earlier version does not run: {error}"
        results = compare_sessions(sessions, inputs, _EFFORT)
    if _EARLIER in results and results[_EARLIER].reason:
        failed = f"the earlier version does not run: {results[_EARLIER].reason}"
    return results, failed


def _manifest(entry: dict[str, Any]) -> Manifest:
    """The manifest as the device gave it.

    Raises:
        MeasureError: it is none, or of a model that is not measured here.
    """
    try:
        manifest = Manifest.model_validate(entry["manifest"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise MeasureError(f"its manifest cannot be read: {printable(first['msg'], 100)}") from error
    if manifest.decoder is not None:
        raise MeasureError("a language model is measured by a deployment alone")
    if not 1 <= manifest.threads <= LIMITS.bundle.threads:
        raise MeasureError("its manifest has no such number of threads")
    return manifest


def _inputs(manifest: Manifest) -> list[np.ndarray]:
    """Inputs of the model's greatest size: the same normal numbers each time, and zeros where they are whole.

    Raises:
        MeasureError: they are too large, or of a type that is not made here.
    """
    draw = np.random.default_rng(0)
    total, inputs = 0, []
    for tensor in manifest.signature.inputs:
        sizes = [int(size) for size in tensor.shape]
        width = LIMITS.item_bytes.get(tensor.dtype)
        wrong = min(sizes, default=1) < 0 or len(sizes) > LIMITS.wire.rank
        if width is None or wrong:
            raise MeasureError(f"an input of {printable(tensor.dtype, 40)} is not made here")
        total += math.prod(sizes) * width
        if total > _MOST_INPUT_BYTES:
            raise MeasureError(f"its inputs take more than {_MOST_INPUT_BYTES >> 20} MiB")
        values = draw.standard_normal(sizes) if "float" in tensor.dtype else np.zeros(sizes)
        inputs.append(np.asarray(values).astype(numpy_type(tensor.dtype)))
    return inputs


def _rounds_at_installation(manifest: Manifest) -> tuple[float, ...]:
    """Seconds of the rounds before the bundle was installed; () where it has none."""
    measured = manifest.measured
    if measured.get("emulated"):
        return ()
    try:
        rounds = measured["contenders"][manifest.backend]["samples"]["rounds_ms"]
        seconds = tuple(float(one) / 1e3 for one in rounds[:_MOST_ROUNDS])
    except (KeyError, TypeError, ValueError):
        return ()
    low, high = LIMITS.records.shortest_s, LIMITS.records.longest_s
    return seconds if all(low <= one <= high for one in seconds) else ()
