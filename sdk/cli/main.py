"""The command `sdk`: parse, call the API, print. One file per group of commands.

Exit codes: 0 done, 1 something failed, 2 the command was wrong, 3 a gate is not met or
`report compare` found a regression, 130 interrupted.
Errors are one line on stderr; `--verbose` adds the traceback.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import tempfile
import termios
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO

import typer
from typer.exceptions import TyperException

from host.devices import notes
from host.errors import EdgeError
from host.versions import of_a_package, wrong_version
from sdk.cli import INTERRUPTED, completion, interruptions
from sdk.cli.commands import bundles, chat, compile_model, deploy, explain, profile, run, tune
from sdk.cli.console import (
    escape_unencodable_text,
    print_error,
    print_line,
    print_trace,
    show_library_messages,
)
from sdk.cli.help import new_group, show_help_alone
from sdk.cli.management import cluster, devices, env, fleet, keys, records, report, tlm, watch
from sdk.cli.mistakes import as_typed, correction
from sdk.cli.options import State
from targets import BoardFileError

# Under whatever name it was started: shells complete this one.
_NAME = "sdk"
# What click ends with where a write finds no reader; the last flush is after it.
_NO_READER = 1
# When the collector looks for cycles: after so many new objects, and through the older ones after as many as
# with the interpreter's own thresholds (700, 10, 10), so that graphs of a model with its weights are freed as
# early. With those, a tenth of the time of lowering and construction goes into looking.
_COLLECTED_AFTER = (10_000, 3, 1)
# Signals that come while a command cleans up, of which the last one ends that.
_IMPATIENT = 4
# Packages of an extra of their own.
_OF_TORCH = ("torch", "transformers", "safetensors")


class Interrupted(BaseException):
    """Ctrl-C, a request to terminate, or a terminal that is gone."""


class _Notes(logging.Handler):
    """Notes of other packages, as lines of the output; on stderr where stdout has rows for programs."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def emit(self, record: logging.LogRecord) -> None:
        """Print a note: on stderr where stdout has JSON for a program."""
        show = print_error if self._state.for_programs else print_line
        show(f"note: {record.getMessage()}")


def build_app() -> typer.Typer:
    """Build the typer application with all commands and groups."""
    app = new_group(
        _NAME, "Compile a model for a device, measure it there beside its peers, and deploy it.", root=True
    )
    app.callback()(_root)
    running = (deploy, compile_model, profile, explain, run, chat, tune, bundles)
    for group in (*running, devices, watch, fleet, cluster, keys, env, records, report, tlm):
        group.register(app)
    return app


def _show_version(value: bool) -> None:
    if value:
        import sdk

        print_line(f"edgetlm {sdk.__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    show_help_alone(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing escapes but the code."""
    state = State()
    if "--verbose" not in (sys.argv if arguments is None else arguments):
        # Libraries' remarks are not for a user: an error is one line of ours, and stderr is for errors.
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
    else:
        show_library_messages()
    escape_unencodable_text()
    notes.show(_Notes(state))
    interrupt = _Interrupter()
    before = {number: signal.signal(number, interrupt) for number in interruptions()}
    thresholds = gc.get_threshold()
    gc.set_threshold(*_COLLECTED_AFTER)
    try:
        with completion.whole_words():
            code = _run(arguments, state)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard(sys.stdout)
        return _NO_READER
    finally:
        gc.set_threshold(*thresholds)
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: Sequence[str] | None, state: State) -> int:
    try:
        words = as_typed(sys.argv[1:] if arguments is None else arguments)
        state.words = tuple(words)
        code = build_app()(words, prog_name=_NAME, standalone_mode=False, obj=state)
    except TyperException as error:
        return _fail(_refusal(error, words), error.exit_code, state)
    except EdgeError as error:
        if _while_interrupted(error):
            return _fail("interrupted", INTERRUPTED, state)
        return _fail(str(error), error.exit_code, state)
    except BoardFileError as error:
        return _fail(str(error), 2, state)
    except Interrupted:
        return _fail("interrupted", INTERRUPTED, state)
    except BrokenPipeError as error:
        # Somebody else's pipe is an error; nobody reads messages on ours, and it raises again here.
        sys.stdout.flush()
        return _fail(_os_reason(error), 1, state)
    except OSError as error:
        return _fail(_os_reason(error), 1, state)
    except MemoryError:
        return _fail("not enough memory: close other programs or use a smaller model", 1, state)
    except Exception as error:  # noqa: BLE001 - the last line of defence of a command line
        return _fail(_unforeseen(error), 1, state)
    return code if isinstance(code, int) else 0


def _refusal(error: TyperException, words: Sequence[str]) -> str:
    """The line for a refused command line: what to type, or where it says what there is."""
    context = getattr(error, "ctx", None)
    path = _command_path(words) if context is None else context.command_path
    meant = correction(error, words, path)
    # Names that look alike are beside the point where the meaning is known.
    text = error.message if meant and getattr(error, "possibilities", None) else error.format_message()
    return f"{text}{meant} ({path} --help shows what there is)"


def _command_path(words: Sequence[str]) -> str:
    """The command that the first words name, for errors that do not know theirs."""
    path, command = [_NAME], typer.main.get_command(build_app())
    for word in words:
        found = getattr(command, "commands", {}).get(word)
        if found is None:
            break
        path.append(word)
        command = found
    return " ".join(path)


def _while_interrupted(error: BaseException | None) -> bool:
    """Whether it was raised by what cleans up after an interruption, which may find half an answer."""
    seen: set[int] = set()
    # Errors may be causes of each other.
    while error is not None and id(error) not in seen:
        if isinstance(error, Interrupted):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _unforeseen(error: Exception) -> str:
    """The line for an error that is none of ours: a package that is missing or wrong, or a fault of ours."""
    wrong = wrong_version(error) if of_a_package(error) else None
    if wrong is None and isinstance(error, ImportError):
        extra = "torch" if error.name in _OF_TORCH else "host"
        return f"{error}: install the host's packages with pip install 'edgetlm[{extra}]'"
    return wrong or f"internal error, {type(error).__name__}: {error}; --verbose shows where"


def _os_reason(error: OSError) -> str:
    if not error.filename and isinstance(error, FileNotFoundError) and not _works_in_a_folder():
        return "the folder that this command was started in is gone: change to another one and run again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        place = error.filename or f"{tempfile.gettempdir()} or {Path.cwd()}"
        return f"no space left while writing {place}: free some and run again"
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _works_in_a_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


class _Interrupter:
    """Handles the signals that interrupt a command.

    What cleans up after the first is not interrupted by the second: whoever waits presses Ctrl-C again, and
    half a bundle would stay. If cleaning up hangs, more of them end that too.
    """

    def __init__(self) -> None:
        self._impatient = 0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        if _while_interrupted(sys.exception()):
            self._impatient += 1
            if self._impatient < _IMPATIENT:
                return
        # As an exception, so that every `finally` on the way out ends sessions and removes scratch files.
        raise Interrupted


def _fail(message: str, code: int, state: State) -> int:
    if state.verbose:
        print_trace(traceback.format_exc())
    print_error(f"error: {message}")
    return code


def _leave_terminal() -> None:
    """Write to nowhere what goes to a terminal that is gone: each write fails, and cleaning up has some."""
    for stream in (sys.stdout, sys.stderr):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                _discard(stream)
        except (OSError, TypeError, ValueError):
            continue  # it is closed, or no file


def _discard(stream: TextIO) -> None:
    """Write to nowhere from now on: Python flushes once more at its end, and would fail once more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
