"""`sdk chat`: texts of a language model on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli import completion
from sdk.cli.help import add_command
from sdk.cli.options import SEED_MOST, DeviceName, SaveFile, Trust, Verbose

if TYPE_CHECKING:
    from sdk.language_model import LanguageModel, TextTiming

# Tokens, of any model.
_MOST = 1 << 30


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, chat, "sdk chat edgetlm-out/qwen/bundle --prompt 'The sea is'")


def chat(
    bundle: Annotated[
        Path,
        typer.Argument(
            help="Bundle directory or zip, or the name of an installed model.",
            autocompletion=completion.runnable,
        ),
    ],
    prompt: Annotated[
        str | None, typer.Option(help="Text to continue; without it, each line of the input is one.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, max=_MOST, help="Most tokens of an answer.")] = 256,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=1e6, help="0 takes the most likely token; above, tokens are drawn.")
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option(min=0, max=_MOST, help="Draw from so many of the likeliest tokens; 0: all.")
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(min=1e-9, max=1.0, help="Draw from the likeliest tokens of this probability together."),
    ] = 1.0,
    seed: Annotated[
        int,
        typer.Option(min=0, max=SEED_MOST, help="Of what is drawn: the same seed gives the same text."),
    ] = 0,
    load: Annotated[
        Path | None,
        typer.Option(help="File of --save: prompts that begin with its text continue there.", metavar="FILE"),
    ] = None,
    save: SaveFile = None,
    device: DeviceName = "local",
    trust: Trust = "signed",
    verbose: Verbose = False,
) -> None:
    """Continue texts with a language model on this machine."""
    from device_agent.contract.text import printable
    from host.errors import UserError
    from sdk import api
    from sdk.cli.console import print_error, print_line

    at_a_terminal = prompt is None and sys.stdin.isatty()
    with api.load_language_model(bundle, device=device, trust=trust) as model:
        if model.warning:
            print_line(f"warning: {model.warning}")
        if load is not None:
            print_line(f"[{model.load_prompt(load)} tokens of {printable(load)}]")
        for text in _lines(at_a_terminal) if prompt is None else (prompt,):
            try:
                pieces = model.generate(
                    text,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed,
                )
            except UserError as error:
                # Whoever types can type another line.
                if not at_a_terminal:
                    raise
                print_error(f"error: {error}")
                continue
            _show(model, pieces)
        if save is not None:
            save.parent.mkdir(parents=True, exist_ok=True)
            print_line(f"[{model.save_prompt(save)} tokens in {printable(save)}]")


def _lines(asks: bool) -> Iterator[str]:
    """Lines of the input until its end, each asked for if that is wanted; empty ones are left out."""
    while True:
        if asks:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _show(model: LanguageModel, pieces: Iterable[str | int]) -> None:
    from sdk.cli.console import print_line, print_piece

    for piece in pieces:
        print_piece(str(piece))
    print_line("")
    if model.timing is not None:
        print_line(speed(model.timing, model.stopped))


def speed(timing: TextTiming, stopped: str) -> str:
    """The line behind a text: how fast it came, and why it ended."""
    parts = [f"{timing.tokens} tokens"]
    if timing.tokens_per_s is not None:
        parts.append(f"{timing.tokens_per_s:.1f} tokens/s")
    if timing.speculated_tokens:
        parts.append(f"{timing.speculated_tokens} of them by speculation")
    parts.append(f"first token after {timing.prefill_s:.2f} s ({timing.prompt_tokens} tokens of prompt)")
    if timing.watts is not None and timing.joules_a_token is not None:
        parts.append(f"{timing.watts:.3g} W, {timing.joules_a_token:.3g} J a token")
    return f"[{', '.join(parts)}; {stopped}]"
