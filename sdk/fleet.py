"""One model on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from host.options import DeployOptions
from host.table import Table, Tabular
from sdk.files.module import as_file, named
from sdk.progress import shown
from sdk.request import check_deployment
from sdk.settings import DeploySettings, with_settings

if TYPE_CHECKING:
    import torch

    from host.deploy import DeployResult
    from host.deploy.fleet import Installed
    from host.progress import Progress
    from sdk.model import Deployment


@dataclass(frozen=True)
class FleetDeployment(Tabular):
    """A finished deployment to several devices.

    Attributes:
        kinds: figures, bundle and report of each kind of board, measured on the first device of it.
        devices: the outcome on each device.
    """

    kinds: tuple[Deployment, ...]
    devices: tuple[Installed, ...]

    @property
    def failed(self) -> tuple[Installed, ...]:
        """The devices on which nothing was installed."""
        return tuple(one for one in self.devices if one.reason)

    def tables(self) -> tuple[Table, ...]:
        """The devices; then what was measured on the first device of each kind."""
        devices = Table(
            "devices",
            f"{len(self.devices) - len(self.failed)} of {len(self.devices)} devices have the model",
            ("device", "board", "version", "median_ms", "reason"),
            tuple(
                (
                    one.device,
                    one.board,
                    one.version[:12],
                    None if one.median_s is None else one.median_s * 1e3,
                    one.reason,
                )
                for one in self.devices
            ),
        )
        return devices, *(replace(kind.tables()[0], name=kind.result.device) for kind in self.kinds)


def deploy_fleet(
    model: str | Path | torch.nn.Module,
    options: DeployOptions | None = None,
    *,
    example_inputs: Sequence[Any] | torch.Tensor = (),
    report: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Unpack[DeploySettings],
) -> FleetDeployment:
    """Compile a model for each kind of board, verify it on every device, install it there and activate it.

    A failure of one device does not affect the others.

    Args:
        model: see `sdk.deploy`.
        options: of the deployment; the device is several names with commas, or `tag:NAME`.
        example_inputs: see `sdk.deploy`.
        report: the HTML report; each kind of board has one, its name added to this one's.
        progress: receives each stage.
        settings: see `sdk.deploy`.

    Returns:
        The outcome on every device; a device that failed raises nothing.

    Raises:
        UserError: the request is invalid: file, shape, devices.
    """
    options = named(with_settings(options or DeployOptions(), settings), model)
    source = as_file(model, example_inputs, options.name)
    check_deployment(model, options)
    from host.deploy.fleet import deploy_fleet as run_fleet

    command = options.command or f"sdk.deploy_fleet({str(model)!r}, device={options.device!r})"
    with source as path:
        default = Path("edgetlm-out") / (options.name or path.stem) / "report.html"
        pages = _Pages(Path(report) if report is not None else default)
        with shown(progress) as listener:
            result = run_fleet(replace(options, model=path, command=command), listener, pages.write)
    return FleetDeployment(tuple(pages.deployment(one) for one in result.results), result.devices)


class _Pages:
    """The reports, one a kind of board.

    Args:
        path: of the reports, without the name of the board.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, result: DeployResult) -> None:
        """Write the report of a kind, before anything is installed."""
        from sdk.report.html import write_report

        write_report(result, self._of(result))

    def deployment(self, result: DeployResult) -> Deployment:
        """A kind's figures with its report."""
        from sdk.model import Deployment

        return Deployment(result, self._of(result))

    def _of(self, result: DeployResult) -> Path:
        from targets import board_for

        board = board_for(result.machine)
        name = board.name if board is not None else result.machine.machine
        return self._path.with_name(f"{self._path.stem}-{name}{self._path.suffix}")
