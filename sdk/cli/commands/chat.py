"""`sdk chat`: texts of a language model on this machine or a board."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    add_command(app, chat, "sdk chat edgetlm-out/qwen/bundle --system 'Answer in one sentence.'")


def chat(
    bundle: Annotated[
        Path,
        typer.Argument(
            help="Bundle directory or zip, or the name of an installed model.",
            autocompletion=completion.runnable,
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(help="A turn, or text to continue; without it, each line of the input is one."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="System prompt: what stands before the conversation.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Continue each text by itself, without the model's chat template."),
    ] = False,
    template: Annotated[
        str | None, typer.Option(help="Name of a chat template, where the model has several.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A variable of the chat template: enable_thinking=false.", metavar="NAME=VALUE"
        ),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="String that ends an answer; may be given several times.")
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
    """Continue texts with a language model, on this machine or on a board."""
    from device_agent.contract.text import printable
    from host.errors import UserError
    from sdk import api
    from sdk.cli.console import print_error, print_line

    at_a_terminal = prompt is None and sys.stdin.isatty()
    how: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    variables = dict(_variable(one) for one in values or ())
    with api.load_language_model(bundle, device=device, trust=trust) as model:
        if model.warning:
            print_line(f"warning: {model.warning}")
        if load is not None:
            print_line(f"[{_tokens(model.load_prompt(load))} of {printable(load)}]")
        talks = bool(model.chat_templates) and not raw
        if not talks:
            why = "--raw is given" if raw else f"{printable(bundle)} has no chat template"
            _refuse_without_template(why, system, template, values)
        messages = [] if system is None else [_message("system", system)]
        for text in _lines(at_a_terminal) if prompt is None else (prompt,):
            asked = [*messages, _message("user", text)]
            try:
                if talks:
                    pieces = model.chat(asked, template=template, variables=variables, stop=stop or (), **how)
                else:
                    pieces = model.generate(text, stop=stop or (), **how)
            except UserError as error:
                # Whoever types can type another line.
                if not at_a_terminal:
                    raise
                print_error(f"error: {error}")
                continue
            messages = [*asked, _message("assistant", _show(model, pieces))]
        if save is not None:
            save.parent.mkdir(parents=True, exist_ok=True)
            print_line(f"[{_tokens(model.save_prompt(save))} in {printable(save)}]")


def _lines(asks: bool) -> Iterator[str]:
    """Lines of the input until its end, each asked for if that is wanted; empty ones are left out."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        # As words of the command line are read: the model says that a text is not UTF-8, and takes the next.
        sys.stdin.reconfigure(errors="surrogateescape")
    while True:
        if asks:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _refuse_without_template(
    why: str, system: str | None, template: str | None, values: list[str] | None
) -> None:
    """Refuse options that would be without effect."""
    from host.errors import UserError

    given = {"--system": system is not None, "--template": template is not None, "--set": bool(values)}
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise UserError(f"{flag} is for a chat template, and {why}: leave one of them out")


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _variable(text: str) -> tuple[str, Any]:
    """Name and value of `--set`: a value of JSON, or else the text itself."""
    from host.errors import UserError
    from sdk.text import visible_line

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UserError(f"--set {visible_line(text)}: give NAME=VALUE, as in enable_thinking=false")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _show(model: LanguageModel, pieces: Iterable[str | int]) -> str:
    """Show a text as it comes, and its speed; returns the text."""
    from sdk.cli.console import print_line, print_piece

    shown = []
    for piece in pieces:
        shown.append(str(piece))
        print_piece(shown[-1])
    print_line("")
    if model.timing is not None:
        print_line(speed(model.timing, model.stopped))
    return "".join(shown)


def speed(timing: TextTiming, stopped: str) -> str:
    """The line behind a text: how fast it came, and why it ended."""
    parts = [_tokens(timing.tokens)]
    if timing.tokens_per_s is not None:
        parts.append(f"{timing.tokens_per_s:.1f} tokens/s")
    if timing.speculated_tokens:
        parts.append(f"{timing.speculated_tokens} of them by speculation")
    known = f", {timing.reused_tokens} of them computed before" if timing.reused_tokens else ""
    prompt = f"{_tokens(timing.prompt_tokens)} of prompt{known}"
    parts.append(f"first token after {timing.prefill_s:.2f} s ({prompt})")
    if timing.watts is not None and timing.joules_a_token is not None:
        parts.append(f"{timing.watts:.3g} W, {timing.joules_a_token:.3g} J a token")
    return f"[{', '.join(parts)}; {stopped}]"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"
