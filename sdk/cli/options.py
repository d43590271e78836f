"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from host.errors import UserError
from host.files import check_output_file
from host.options import text_of
from sdk.cli import completion


@dataclass
class State:
    """The state of one invocation of the command line.

    Attributes:
        verbose: show tracebacks.
        for_programs: the output is rows for programs, so that remarks go elsewhere.
        words: of the command line.
    """

    verbose: bool = False
    for_programs: bool = False
    words: tuple[str, ...] = ()

    def typed(self, flags: Sequence[str]) -> str:
        """Which flag of an option was typed: the last one of several, the longest where none was."""
        for word in reversed(self.words):
            for flag in flags:
                glued = f"{flag}=" if flag.startswith("--") else flag
                if word == flag or word.startswith(glued):
                    return flag
        return max(flags, key=len)


def _remember(context: typer.Context, value: bool) -> bool:
    state = context.find_root().obj
    if value and isinstance(state, State):
        state.verbose = True
    return value


def _writable(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
    """The path of a file that is to be written, refused before any work if it cannot be."""
    if value is not None:
        check_output_file(value, max(parameter.opts, key=len))
    return value


def _page(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
    """The path of a page, refused before any work where its name says that it would be something else."""
    if value is not None and value.suffix.lower() in _OTHER_PAGES:
        raise UserError(
            f"{max(parameter.opts, key=len)} {value}: a report is HTML: name it {value.stem}.html"
        )
    return _writable(parameter, value)


# Names under which a page would not open.
_OTHER_PAGES = (".pdf", ".json", ".csv", ".md", ".txt", ".png", ".svg", ".onnx", ".npz", ".zip")
# Exit code of a deployment that a gate stopped.
GATE_NOT_MET = 3
MODEL_HELP = (
    "ONNX, .pt2, TFLite or GGUF file, an Ultralytics .pt, a folder of transformers, or hf://ORG/MODEL; "
    "edgetlm.toml may name it."
)
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show tracebacks.", callback=_remember, expose_value=True)
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device", help="The device's name; sdk devices lists them.", autocompletion=completion.devices
    ),
]
DeviceFilter = Annotated[
    str,
    typer.Option(
        "--device",
        help="Only of this device; of every one if not given.",
        autocompletion=completion.devices,
    ),
]
Threads = Annotated[int, typer.Option(min=0, max=4096, help=text_of("threads"))]
Records = Annotated[
    str, typer.Option("--records", metavar="URL", envvar="EDGETLM_RECORDS", help=text_of("records"))
]
Trust = Annotated[
    str,
    typer.Option(
        "--trust",
        metavar="signed|unsigned",
        help="unsigned runs a bundle whose signer the device does not trust: its code runs there as you.",
    ),
]
SEED_MOST = (1 << 63) - 1
Seed = Annotated[int, typer.Option(min=0, max=SEED_MOST, help=text_of("seed"))]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="Write stages, kernels and power to this file, for Perfetto (Chrome's JSON).",
        callback=_writable,
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the figures to this file.", callback=_writable)
]
ReportFile = Annotated[Path | None, typer.Option("--report", help="HTML report to write.", callback=_page)]
SaveFile = Annotated[
    Path | None,
    typer.Option(
        "--save",
        help="Write the state behind the last text, prompt included, to a file.",
        metavar="FILE",
        callback=_writable,
    ),
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="HTML file to write.", callback=_page)
]
ArraysFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Where outputs go, a .npz file.", callback=_writable),
]
