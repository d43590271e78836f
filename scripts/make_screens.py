#!/usr/bin/env python3
"""Make the pictures in docs/screens: `.venv/bin/python scripts/make_screens.py [NAME ...]`.

Each is what a real command writes, drawn by rich. The help is the same on each machine, and a test compares
it. The deployment is one on a simulated board with known times, whose file lies beside the pictures. The
boards of a laboratory are leased in a PostgreSQL server that is started for it. The report is photographed by
Chromium, and the front of latency and energy is taken out of one.
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "screens"
# A picture loads no font from anywhere.
_DRAWN = str(inspect.signature(Console.export_svg).parameters["code_format"].default)
_FORMAT = re.sub(r"\s*@font-face \{\{.*?\}\}", "", _DRAWN, flags=re.DOTALL).replace(
    "Fira Code,", "ui-monospace, Consolas, Menlo, "
)


def picture(name: str, typed: str, output: str, width: int = 80) -> str:
    """A terminal with a command and what it wrote, as SVG.

    Args:
        name: of the picture, for the identifiers in it.
        typed: the command.
        output: its lines, without escapes.
        width: of the terminal in characters; longer lines are broken.
    """
    console = Console(
        record=True, width=width, file=io.StringIO(), highlight=False, markup=False, emoji=False
    )
    console.print(Text("$ ", style="bold green") + Text(typed, style="bold"))
    console.print(Text(output.rstrip("\n")))
    made = console.export_svg(title="", code_format=_FORMAT, unique_id=f"screen-{name}")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def run(arguments: Sequence[str], folder: Path | None = None, width: int = 80, **variables: str) -> str:
    """What a command of `sdk` writes.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(width), **variables}
    command = [sys.executable, "-m", "sdk.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout


def _of(name: str, *arguments: str) -> str:
    return picture(name, " ".join(["sdk", *arguments]), run(arguments))


_DEPLOY = ("deploy", "mobilenetv2.onnx", "--device", "replay:board.toml")


def deployed(folder: Path, *options: str, board: Path = FOLDER / "board.toml") -> str:
    """Deploy MobileNetV2 on a simulated board.

    Args:
        folder: in which the command runs; the report is `edgetlm-out/mobilenetv2/report.html` in it.
        options: further words of the command.
        board: the simulated board.

    Returns:
        what the command wrote.
    """
    from research.models.export import export

    export("mobilenetv2", folder, "onnx")
    (folder / "board.toml").write_bytes(board.read_bytes())
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CACHE", "CONFIG", "DATA")}
    return run([*_DEPLOY, *options], folder, 100, **own)


def _deployment() -> str:
    """From the end of a deployment: the lines after those of the stages."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # The working folder is one of this machine.
        output = deployed(folder).replace(f"{folder.resolve()}/", "")
    end = output[output.index("\nmobilenetv2 on ") :].lstrip("\n")
    return picture("deploy", " ".join(["sdk", *_DEPLOY]), end, 100)


def _report() -> bytes:
    """The upper part of a report, photographed."""
    # A script finds its own folder alone.
    sys.path.append(str(ROOT))
    from tests.browser import photograph

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        deployed(folder)
        page = folder / "edgetlm-out" / "mobilenetv2" / "report.html"
        return photograph(page, folder / "profile", (820, 1000))


def _front() -> str:
    """Latency and energy in each power mode, from the report of a deployment for the least energy."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        words = ("--threads", "1", "--objective", "energy", "--power-modes", "all")
        deployed(folder, *words, board=FOLDER / "modes.toml")
        page = (folder / "edgetlm-out" / "mobilenetv2" / "report.html").read_text(encoding="utf-8")
    found = re.search(r'id="chart-front"><svg(.*?)</svg>', page, re.DOTALL)
    if found is None:
        raise SystemExit("the report has no front of latency and energy")
    style = "font:12px system-ui,sans-serif;color:#1c2733;background:#fff"
    rules = ".rule{stroke:currentColor;stroke-opacity:.15}"
    begin, rest = found.group(1).split(">", 1)
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" style="{style}"{begin}>'
    return f"{opened}<style>{rules}</style>{rest}</svg>\n"


def _fleet() -> str:
    """Two boards of a laboratory: one that is used and waited for, and one that is used."""
    from host.leases.table import LeaseTable, Request
    from tests.servers.postgres import Server

    server = Server()
    try:
        url = server.url(server.database())
        run(["records", "upgrade", "--records", url])
        with LeaseTable(url) as table:
            wanted = [
                ("pi5", "anna@desk", "tune mobilenetv2"),
                ("pi5", "ben@lab", "deploy detector"),
                ("orin", "build@server", "deploy segformer"),
            ]
            for number, (name, owner, job) in enumerate(wanted):
                table.take(Request(f"ssh:{name}", name, owner, job, f"ticket{number}"))
            output = run(["fleet", "status", "--records", url], width=130)
    finally:
        server.remove()
    return picture("fleet", "sdk fleet status", output.rstrip(), 130)


# Text is an SVG picture, bytes are one in PNG.
SCREENS: dict[str, Callable[[], str | bytes]] = {
    "help": lambda: _of("help", "--help"),
    "deploy": _deployment,
    "fleet": _fleet,
    "front": _front,
    "report": _report,
}
# Those whose text depends on no machine and no time.
STEADY = ("help",)


def main(arguments: Sequence[str]) -> int:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(description="Make the pictures of terminals.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCREENS)}; all by default")
    for name in parser.parse_args(arguments).names or SCREENS:
        made = SCREENS[name]()
        path = FOLDER / f"{name}.{'svg' if isinstance(made, str) else 'png'}"
        path.write_bytes(made.encode() if isinstance(made, str) else made)
        print(path.relative_to(ROOT), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
