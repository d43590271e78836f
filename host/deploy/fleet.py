"""Deployment to several devices: compile once for each kind of board, verify and install on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from host import bundle
from host.compare.verification import verify
from host.deploy.board_group import device_names, difference_of
from host.deploy.deployment import default_bundle, deploy
from host.deploy.leased_boards import LeasedBoards
from host.deploy.result import DeployResult
from host.errors import DeviceError, EdgeError, VerifyError
from host.model_file import check_file
from host.options import DeployOptions
from host.progress import Progress, Silence, StageClock
from host.tuning.runners.reach import Reach, open_reach
from targets import MachineDescription, board_for

if TYPE_CHECKING:
    from host.transport import Device

# The figures beside the first device's are a look, not a comparison.
_MEASURE = {"warmup_s": 0.2, "min_time_s": 0.5, "max_time_s": 5.0}


@dataclass(frozen=True)
class Installed:
    """The outcome on one device.

    Attributes:
        device: its name.
        board: its kind; "" if the device did not answer.
        version: of the bundle that is active on the device; "" if nothing was installed.
        median_s: seconds of one inference on the device; None if it was not measured.
        reason: why nothing was installed; "" if a bundle was installed.
    """

    device: str
    board: str
    version: str = ""
    median_s: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class FleetResult:
    """The outcome of a deployment to several devices.

    Attributes:
        results: the full figures of the first device of each kind of board.
        devices: every device, in the order in which they were named.
    """

    results: tuple[DeployResult, ...]
    devices: tuple[Installed, ...]

    @property
    def failed(self) -> tuple[Installed, ...]:
        """The devices on which nothing was installed."""
        return tuple(one for one in self.devices if one.reason)


def deploy_fleet(
    options: DeployOptions,
    progress: Progress | None = None,
    before_install: Callable[[DeployResult], None] | None = None,
) -> FleetResult:
    """Deploy a model file to every device that `options.device` names.

    For each kind of board, `deploy` compiles, tunes, verifies and measures the model on the first device that
    succeeds; the others get the same bundle, which is verified on each of them. A failure of one device does
    not affect the others.

    Args:
        options: of the deployment; each kind has its own bundle, named after its board.
        progress: receives the stages.
        before_install: see `deploy`; called once for each kind.

    Raises:
        UserError: the request is invalid: file, shape, devices.
    """
    options.check()
    check_file(options.model)
    names = device_names(options.device, options.engine)
    clock = StageClock(progress or Silence())
    with open_reach(options.engine, names) as reach:
        return _deployed(options, names, reach, clock, progress, before_install)


def _deployed(
    options: DeployOptions,
    names: Sequence[str],
    reach: Reach,
    clock: StageClock,
    progress: Progress | None,
    before_install: Callable[[DeployResult], None] | None,
) -> FleetResult:
    with clock.stage("connect"), ThreadPoolExecutor(len(names)) as pool:
        answers = dict(
            zip(names, pool.map(lambda name: _described(name, options.wait_s, reach), names), strict=True)
        )
    outcomes = {
        name: Installed(name, "", reason=str(answer))
        for name, answer in answers.items()
        if isinstance(answer, EdgeError)
    }
    machines = {name: answer for name, answer in answers.items() if isinstance(answer, MachineDescription)}
    results = []
    for kind in _kinds(machines):
        own = replace(options, bundle=_bundle_of(options, machines[kind[0]]))
        made, found = _one_kind(own, kind, machines, progress, before_install, clock, reach)
        outcomes.update(found)
        if made is not None:
            results.append(made)
    return FleetResult(tuple(results), tuple(outcomes[name] for name in names))


def _described(name: str, wait_s: float, reach: Reach) -> MachineDescription | EdgeError:
    try:
        with reach.connect(name, wait_s) as device:
            return device.describe()
    except EdgeError as error:
        return error


def _kinds(machines: dict[str, MachineDescription]) -> list[list[str]]:
    """The devices, grouped by kind."""
    kinds: list[list[str]] = []
    for name, machine in machines.items():
        for kind in kinds:
            try:
                if not difference_of(kind[0], machines[kind[0]], name, machine):
                    kind.append(name)
                    break
            except EdgeError:
                # No board file describes it: it is a kind of its own, and its deployment says so.
                continue
        else:
            kinds.append([name])
    return kinds


def _bundle_of(options: DeployOptions, machine: MachineDescription) -> Path:
    path = options.bundle or default_bundle(options)
    return path.with_name(f"{path.stem}-{_board_name(machine)}{path.suffix}")


def _one_kind(
    options: DeployOptions,
    names: Sequence[str],
    machines: dict[str, MachineDescription],
    progress: Progress | None,
    before_install: Callable[[DeployResult], None] | None,
    clock: StageClock,
    reach: Reach,
) -> tuple[DeployResult | None, dict[str, Installed]]:
    """Deploy to the first device that succeeds, and install the bundle on the others."""
    outcomes: dict[str, Installed] = {}
    for name in names:
        left = tuple(one for one in names if one not in outcomes and one != name)
        board = _board_name(machines[name])
        try:
            result = deploy(replace(options, device=name, beside=left), progress, before_install, reach=reach)
        except DeviceError as error:
            # The device's own fault: the next one may do better.
            outcomes[name] = Installed(name, board, reason=str(error))
            clock.progress.note(f"{name}: {error}")
            continue
        except EdgeError as error:
            every = {one: Installed(one, board, reason=str(error)) for one in (name, *left)}
            return None, outcomes | every
        if result.failed_gates:
            why = f"not installed, a gate is not met: {result.failed_gates[0].name}"
            every = {one: Installed(one, board, reason=why) for one in (name, *left)}
            return result, outcomes | every
        contender = result.contenders.get(result.choice.backend)
        measured = contender.measurement if contender is not None else None
        outcomes[name] = Installed(
            name, board, _active(name, result.name, reach), measured.median_s if measured else None
        )
        with (
            clock.stage("install"),
            LeasedBoards(options, "deploy", clock.progress.note, reach) as leased,
            ThreadPoolExecutor(max(1, len(left))) as pool,
        ):
            install = partial(_installed, board=board, path=result.bundle, connect=leased.connect)
            for found in pool.map(install, left):
                outcomes[found.device] = found
        return result, outcomes
    return None, outcomes


def _installed(name: str, board: str, path: Path, connect: Callable[[str], Device]) -> Installed:
    """Verify a bundle on a device and install it there."""
    try:
        with TemporaryDirectory(prefix="edgetlm-") as scratch, connect(name) as device:
            directory = bundle.unpacked(path, Path(scratch))
            manifest = bundle.load(directory)
            with device.open_session(manifest.backend, threads=manifest.threads) as session:
                session.load(directory)
                golden = bundle.golden_cases(directory, manifest)
                verdict, _ = verify(session, manifest.typed_signature(), golden)
                if not verdict.passed:
                    raise VerifyError(f"{name}: {verdict.message}; nothing was installed there")
                median_s = session.measure(golden[0].inputs, **_MEASURE).median_s if golden else None
            version = device.install(directory, manifest.name)
            device.activate(manifest.name, version)
    except EdgeError as error:
        return Installed(name, board, reason=str(error))
    return Installed(name, board, version, median_s)


def _active(name: str, model: str, reach: Reach) -> str:
    """The active version of a model on a device; "unknown" if the device no longer answers."""
    try:
        with reach.connect(name) as device:
            versions = [one for one in device.bundles() if one["name"] == model and one["active"]]
    except DeviceError:
        return "unknown"
    return str(versions[0]["version"]) if versions else ""


def _board_name(machine: MachineDescription) -> str:
    board = board_for(machine)
    return board.name if board is not None else machine.machine
