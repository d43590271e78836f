"""One model on several devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from host.deploy import DeployResult
    from host.deploy.fleet import Installed
    from host.progress import Progress
    from sdk.model import Deployment


@dataclass(frozen=True)
class FleetDeployment:
    """A finished deployment to several devices.

    Attributes:
        kinds: figures, bundle and report of each kind of board, measured on the first device of it.
        devices: what became of each device.
    """

    kinds: tuple[Deployment, ...]
    devices: tuple[Installed, ...]

    @property
    def failed(self) -> tuple[Installed, ...]:
        """The devices that nothing was installed on."""
        return tuple(one for one in self.devices if one.reason)


def names_several(device: str) -> bool:
    """Whether `--device` may mean more than one."""
    return "," in device or device.startswith("tag:")


def deploy_fleet(
    model: str | Path | torch.nn.Module,
    device: str,
    *,
    example_inputs: tuple[Any, ...] = (),
    report: str | Path | None = None,
    progress: Progress | None = None,
    **how: Any,
) -> FleetDeployment:
    """Compile a model for each kind of board, verify it on every device, install it there and activate it.

    A device that fails changes nothing for the others.

    Args:
        model: see `sdk.deploy`.
        device: names with commas, or `tag:NAME`.
        example_inputs: see `sdk.deploy`.
        report: the HTML report; each kind of board has one, its name added to this one's.
        progress: where stages are told.
        how: any other argument of `sdk.deploy`.

    Returns:
        What became of every device; nothing is raised for one that failed.

    Raises:
        UserError: the request cannot be: file, shape, devices.
    """
    from host.deploy import DeployOptions
    from host.deploy.fleet import deploy_fleet as run_fleet
    from sdk.module_file import as_file

    name = str(how.get("name", ""))
    how.setdefault("command", f"sdk.deploy_fleet({str(model)!r}, {device!r})")
    if how.get("bundle") is not None:
        how["bundle"] = Path(how["bundle"])
    with as_file(model, example_inputs, name) as path:
        default = Path("edgetlm-out") / (name or path.stem) / "report.html"
        pages = _Pages(Path(report) if report is not None else default)
        result = run_fleet(DeployOptions(model=path, device=device, **how), progress, pages.write)
    return FleetDeployment(tuple(pages.deployment(one) for one in result.results), result.devices)


class _Pages:
    """The reports, one a kind of board.

    Args:
        path: what the boards' names are added to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, result: DeployResult) -> None:
        """Write the report of a kind, before anything is installed."""
        from sdk.report.html import render
        from sdk.report.page import StagedPage

        with StagedPage(self._of(result)) as page:
            page.write(render(result))

    def deployment(self, result: DeployResult) -> Deployment:
        """A kind's figures with its report."""
        from sdk.model import Deployment

        return Deployment(result, self._of(result))

    def _of(self, result: DeployResult) -> Path:
        from targets import board_for

        board = board_for(result.machine)
        name = board.name if board is not None else result.machine.machine
        return self._path.with_name(f"{self._path.stem}-{name}{self._path.suffix}")
