#!/usr/bin/env python3
"""Make the pictures of terminals in docs/screens: `.venv/bin/python scripts/make_screens.py [NAME ...]`.

Each is what a real command writes, drawn by rich. The help is the same on each machine, and a test compares
it. The deployment is one on a simulated board with known times, whose file lies beside the pictures. The
boards of a laboratory are leased in a PostgreSQL server that is started for it.
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


def _deployment() -> str:
    """From the end of a deployment: the lines after those of the stages."""
    from tests.models.export import export

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = export("mobilenetv2", folder, "onnx")
        (folder / "board.toml").write_bytes((FOLDER / "board.toml").read_bytes())
        own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CACHE", "CONFIG", "DATA")}
        words = ["deploy", model.name, "--device", "replay:board.toml"]
        output = run(words, folder, 100, **own)
        # The working folder is one of this machine.
        output = output.replace(f"{folder.resolve()}/", "")
    end = output[output.index("\nmobilenetv2 on ") :].lstrip("\n")
    return picture("deploy", " ".join(["sdk", *words]), end, 100)


def _fleet() -> str:
    """Three boards: one that is used and waited for, one that is used, one whose holder is gone."""
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


SCREENS: dict[str, Callable[[], str]] = {
    "help": lambda: _of("help", "--help"),
    "deploy": _deployment,
    "fleet": _fleet,
}
# Those whose text depends on no machine and no time.
STEADY = ("help",)


def main(arguments: Sequence[str]) -> int:
    """Make those that are named, or all."""
    parser = argparse.ArgumentParser(description="Make the pictures of terminals.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCREENS)}; all by default")
    for name in parser.parse_args(arguments).names or SCREENS:
        (FOLDER / f"{name}.svg").write_text(SCREENS[name](), encoding="utf-8")
        print(f"docs/screens/{name}.svg", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
