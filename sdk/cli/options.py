"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from host.errors import UserError


@dataclass
class State:
    """What one invocation remembers.

    Attributes:
        verbose: show tracebacks.
    """

    verbose: bool = False


def _remember(context: typer.Context, value: bool) -> bool:
    state = context.find_root().obj
    if value and isinstance(state, State):
        state.verbose = True
    return value


Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show tracebacks.", callback=_remember, expose_value=True)
]
DeviceName = Annotated[str, typer.Option("--device", help="The device's name; sdk devices lists them.")]
DeviceNames = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME[,NAME]|tag:TAG",
        help="The device's name; sdk devices lists them. Several, or a tag, are worked with at once.",
    ),
]
Wait = Annotated[
    str, typer.Option("--wait", metavar="10m", help="Time to wait for a device that another host has.")
]
Reconnect = Annotated[
    str,
    typer.Option(
        "--reconnect",
        metavar="5m",
        help="Time to wait for a device that goes away while kernels are measured.",
    ),
]
Backend = Annotated[str, typer.Option(help="auto, tvm, onnxruntime or litert.")]
Objective = Annotated[str, typer.Option(help="latency, energy (joules of a run) or edp (their product).")]
PowerCap = Annotated[
    float | None,
    typer.Option("--power-cap", metavar="WATTS", help="Greatest mean gross watts at the sensor's boundary."),
]
PowerModes = Annotated[
    str,
    typer.Option(
        "--power-modes",
        metavar="all|NAME,...",
        help="Power modes to measure in as well; the device is left as it was.",
    ),
]
Processor = Annotated[
    str, typer.Option(help="cpu, gpu (the board's CUDA GPU) or auto: the faster one where both can run it.")
]
Dtype = Annotated[str, typer.Option(help="fp32, or fp16: half the memory, checked with a tolerance of 1e-2.")]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        metavar="ENGINE",
        help="Engine to measure beside ours (onnxruntime, litert, openvino, torch, tensorrt, ncnn); the "
        "format's own if not given. May repeat.",
    ),
]
PeerFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--peer-file", metavar="ENGINE=PATH", help="The same model for an engine that cannot read this one."
    ),
]
Trials = Annotated[int, typer.Option(help="Kernels to measure in all; 0 measures only the finished model.")]
Budget = Annotated[
    str, typer.Option("--budget", metavar="3m", help="Time for measuring kernels: 90s, 3m, 1h.")
]
Train = Annotated[
    bool, typer.Option("--train/--no-train", help="Whether the language model learns from the measurements.")
]
Threads = Annotated[int, typer.Option(help="Threads for the model; 0 takes all cores of the device.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,128",
        help="Shape of an input with open dimensions, or the size of a dimension by its name; "
        "LOW..HIGH serves a range (seq=1..512). May repeat.",
    ),
]
Lengths = Annotated[
    str, typer.Option("--lengths", metavar="16,128", help="Lengths of the range to measure at.")
]
Records = Annotated[
    str,
    typer.Option(
        "--records",
        metavar="URL",
        envvar="EDGETLM_RECORDS",
        help="Store of records: a SQLite file or any SQLAlchemy URL; the user's own if not given.",
    ),
]
Trust = Annotated[
    str,
    typer.Option(
        "--trust",
        metavar="signed|unsigned",
        help="unsigned runs a bundle whose signer the device does not trust: its code runs there as you.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[int | tuple[int, int], ...]]:
    """`NAME=1,128` and `NAME=1..512` to sizes and ranges by name.

    Raises:
        UserError: a text is not of that form.
    """
    shapes: dict[str, tuple[int | tuple[int, int], ...]] = {}
    for text in texts or []:
        name, separator, dimensions = text.rpartition("=")
        if not separator or not name:
            raise _shape_error(text)
        shape = tuple(_size(text, part) for part in dimensions.split(","))
        if name in shapes:
            raise UserError(f"--shape {text}: {name!r} was given a shape already")
        shapes[name] = shape
    return shapes


def parse_names(text: str) -> tuple[str, ...]:
    """`15W, MAXN` to names, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_peer_files(texts: list[str] | None) -> dict[str, Path]:
    """`ncnn=FOLDER` to paths by engine.

    Raises:
        UserError: not of that form, or no such file.
    """
    files: dict[str, Path] = {}
    for text in texts or []:
        engine, separator, path = text.partition("=")
        if not separator or not engine or not path:
            raise UserError(f"--peer-file {text}: write it as ENGINE=PATH")
        if not Path(path).exists():
            raise UserError(f"--peer-file {text}: there is no {path}")
        files[engine] = Path(path)
    return files


def parse_seconds(text: str, option: str = "--budget") -> float:
    """`3m` in seconds; 0 for "".

    Args:
        text: as typed.
        option: that it was given with.

    Raises:
        UserError: not of that form.
    """
    if not text:
        return 0.0
    from host.tuning.budget import parse_budget

    return parse_budget(text, option)


def parse_lengths(text: str) -> tuple[int, ...]:
    """`16,128` to numbers, in order and each once.

    Raises:
        UserError: not of that form.
    """
    if not text:
        return ()
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        lengths = [0]
    if lengths[0] <= 0:
        raise UserError(f"--lengths {text}: write it as 16,128,512, positive numbers with commas")
    return tuple(lengths)


def _size(text: str, part: str) -> int | tuple[int, int]:
    low, dots, high = part.partition("..")
    try:
        sizes = (int(low), int(high if dots else low))
    except ValueError:
        raise _shape_error(text) from None
    if min(sizes) <= 0:
        raise _shape_error(text)
    if sizes[0] > sizes[1]:
        raise UserError(f"--shape {text}: a range goes from the lesser to the greater size, as in 1..512")
    return sizes if dots else sizes[0]


def _shape_error(text: str) -> UserError:
    return UserError(f"--shape {text}: write it as NAME=1,128 or NAME=1..512, positive numbers with commas")
