"""One side of a comparison, read from a result file, a bundle or a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from device_agent.contract.text import printable
from host import bundle
from host.errors import UserError
from host.manifest import Manifest
from host.model import BOARD, TimingPolicy
from host.model.timing import kept_timing
from host.model_file import is_zip
from sdk.report.page import figures_in
from sdk.text import without_host_paths

# What `sdk deploy --json` writes. Version 2 has the samples that bounds are made of.
DEPLOY_SCHEMA = "edgetlm.deploy/2"
# A report of an earlier version has five.
_LARGEST_BYTES = 256 << 20
_AGAIN = "deploy the model again with this version"


@dataclass(frozen=True)
class EnergySide:
    """Energy of a run of one side.

    Attributes:
        kind, boundary, rails: see `host.model.Energy`.
        value_mj: millijoules; None if unavailable.
        std_mj, trials: spread of the agent's own trials, if there are any.
        windows_mj: the recorded windows.
        reason: why energy is unavailable.
    """

    kind: str
    boundary: str
    rails: tuple[str, ...]
    value_mj: float | None
    std_mj: float | None
    trials: int
    windows_mj: tuple[float, ...]
    reason: str


@dataclass(frozen=True)
class EngineSide:
    """One engine of one side.

    Attributes:
        rounds_ms: median milliseconds of each round.
        energy: of a run.
        error, tolerance: of the outputs, against the golden ones; None if they were not verified.
        throttled: whether the device was slowed down.
    """

    rounds_ms: tuple[float, ...]
    energy: EnergySide
    error: float | None = None
    tolerance: float | None = None
    throttled: bool = False


@dataclass(frozen=True)
class Side:
    """The figures of the deployed model in a result.

    Attributes:
        source: the file that it was read from.
        name, backend: as deployed.
        device: its name, without paths of the host, which a bundle of a simulated board has and a result not.
        threads: of the model.
        cpu: name of the processor; "" if the source has none.
        own: the deployed engine.
        peers: the other measured engines, by name.
        bundle_bytes: of the files that the device runs.
        default_share: share of the kernels' time on default schedules.
        versions: by name.
        timing: what the times of the device are worth.
        instructions: of a run, if an emulator counted them; None otherwise.
    """

    source: str
    name: str
    device: str
    backend: str
    threads: int
    cpu: str
    own: EngineSide
    peers: Mapping[str, EngineSide] = field(default_factory=dict)
    bundle_bytes: int | None = None
    default_share: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    timing: TimingPolicy = BOARD
    instructions: float | None = None


def read_side(path: Path) -> Side:
    """Read one side.

    Args:
        path: a file of `sdk deploy --json`, a bundle's directory or zip, or a report.

    Raises:
        UserError: the file is missing, is no result, has another version, or has no samples. BundleError:
                the bundle is damaged.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file: give a result of sdk deploy --json, a bundle or a report")
    if path.is_dir() or is_zip(path):
        return _from_bundle(path)
    if path.stat().st_size > _LARGEST_BYTES:
        raise UserError(f"{path} is no result: it has more than {_LARGEST_BYTES >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8")
        content = figures_in(text) if path.suffix in (".html", ".htm") else json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or "schema" not in content:
        raise UserError(f"{path} is no result: give what sdk deploy --json wrote, a bundle or a report")
    if str(content["schema"]).startswith("edgetlm.tune/"):
        raise UserError(f"{path} is the result of a tuning: give a result of sdk deploy --json")
    if content["schema"] != DEPLOY_SCHEMA:
        schema = printable(repr(content["schema"]), 80)
        raise UserError(f"{path} is {schema}, this program compares {DEPLOY_SCHEMA!r}: {_AGAIN}")
    return side_of_figures(str(path), content)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Samples(_Part):
    rounds_ms: tuple[_Milliseconds, ...] = ()
    windows_mj: tuple[_Finite, ...] = ()


class _Energy(_Part):
    value: _Finite | None = None
    kind: str = "unavailable"
    source: str = ""
    boundary: str = ""
    rails: tuple[str, ...] = ()
    std: _Finite | None = None
    trials: int | None = None
    reason: str = ""


class _Verify(_Part):
    max_rel_err: float | None = None
    tolerance: float


class _Engine(_Part):
    energy_mj: _Energy = _Energy()
    samples: _Samples = _Samples()
    verify: _Verify | None = None
    throttled: bool = False
    instructions: float | None = None

    def side(self) -> EngineSide:
        """The side in the form that the comparison needs."""
        energy = self.energy_mj
        return EngineSide(
            rounds_ms=self.samples.rounds_ms,
            energy=EnergySide(
                kind=energy.kind,
                boundary=energy.boundary,
                rails=tuple(sorted(energy.rails)),
                value_mj=energy.value,
                std_mj=energy.std,
                trials=energy.trials or 1,
                windows_mj=self.samples.windows_mj,
                reason=energy.reason or energy.source,
            ),
            error=self.verify.max_rel_err if self.verify is not None else None,
            tolerance=self.verify.tolerance if self.verify is not None else None,
            throttled=self.throttled,
        )


class _Machine(_Part):
    cpu: str = ""


class DeployFigures(_Engine):
    """What a comparison reads of the figures of `sdk deploy --json`."""

    name: str
    device: str
    backend: str
    threads: int
    machine: _Machine = _Machine()
    peers: dict[str, _Engine] = Field(default_factory=dict)
    bundle_bytes: int | None = None
    default_share: float | None = None
    tasks: tuple[dict[str, Any], ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    emulated: bool = False
    simulated: bool = False


class _Measured(_Part):
    device: str
    threads: int
    cpu: str = ""
    contenders: dict[str, _Engine]
    emulated: bool = False
    simulated: bool = False


def side_of_figures(source: str, content: Mapping[str, Any]) -> Side:
    """The side of what `sdk deploy --json` writes.

    Args:
        source: what it is called in messages.
        content: the figures.

    Raises:
        UserError: they are damaged, or have no samples.
    """
    try:
        part = DeployFigures.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{source} is damaged ({_first(error)}): {_AGAIN}") from error
    return Side(
        source=source,
        name=part.name,
        device=without_host_paths(part.device),
        backend=part.backend,
        threads=part.threads,
        cpu=part.machine.cpu,
        own=part.side(),
        peers=_measured_peers(source, part.backend, {**part.peers, part.backend: part}),
        bundle_bytes=part.bundle_bytes,
        default_share=part.default_share if part.tasks else None,
        versions=part.versions,
        timing=kept_timing(part.emulated, part.simulated, part.device),
        instructions=part.instructions,
    )


def _from_bundle(path: Path) -> Side:
    return side_of_manifest(str(path), bundle.load(path), bundle.runnable_bytes(path))


def side_of_manifest(source: str, manifest: Manifest, bundle_bytes: int) -> Side:
    """The side of a bundle.

    Args:
        source: what it is called in messages.
        manifest: of the bundle.
        bundle_bytes: of the files that the device runs.

    Raises:
        UserError: it holds no figures, or they have no samples.
    """
    try:
        part = _Measured.model_validate(manifest.measured)
        own = part.contenders[manifest.backend].side()
    except (ValidationError, KeyError):
        raise UserError(f"{source} holds no measured figures: only a deployed bundle has them") from None
    return Side(
        source=source,
        name=manifest.name,
        device=without_host_paths(part.device),
        backend=manifest.backend,
        threads=part.threads,
        cpu=part.cpu,
        own=own,
        peers=_measured_peers(source, manifest.backend, part.contenders),
        bundle_bytes=bundle_bytes,
        default_share=_default_share(manifest),
        versions=manifest.versions,
        timing=kept_timing(part.emulated, part.simulated, part.device),
        instructions=part.contenders[manifest.backend].instructions,
    )


def _measured_peers(source: str, backend: str, engines: Mapping[str, _Engine]) -> dict[str, EngineSide]:
    """The other engines that have samples.

    Raises:
        UserError: the deployed one has none.
    """
    if not engines[backend].samples.rounds_ms:
        raise UserError(f"{source} holds no samples, so noise cannot be distinguished from change: {_AGAIN}")
    return {name: one.side() for name, one in engines.items() if name != backend and one.samples.rounds_ms}


def _default_share(manifest: Manifest) -> float | None:
    times = [(one.source, one.weight * one.latency_us) for one in manifest.kernels if one.latency_us]
    total = sum(time for _, time in times)
    return sum(time for source, time in times if source == "default") / total if total else None


def _first(error: ValidationError) -> str:
    first: Sequence[Any] = error.errors()
    return printable(f"{'.'.join(str(part) for part in first[0]['loc'])}: {first[0]['msg']}", 200)
