"""The entry point of the command `sdk`, with a hint where packages are missing or of the wrong version."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from sdk.cli import INTERRUPTED, interruptions


def command() -> int:
    """As `main`, for a process that ends with it.

    The interpreter is not taken apart then: to free what TVM and a compiled model have made, object by
    object, takes longer than many commands. What packages do at the end of a process is done before: their
    handlers are registered later than this one, and the last one runs first. Where a tool has started the
    interpreter with handlers of its own, such as one that measures coverage, they run, and it is taken apart.
    """
    _open_missing_streams()
    codes: list[int] = []
    if not atexit._ncallbacks():
        atexit.register(_end_process, codes)
    codes.append(main())
    return codes[0]


def _open_missing_streams() -> None:
    """Open the null device in place of a stream that the process was started without.

    The first free descriptor is that of the stream, which a file of records would get otherwise, and with it
    what libraries and children write there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def main() -> int:
    """Run the command line; exit code 1 with one line where the host's packages are missing or wrong."""
    before = {number: signal.signal(number, _leave) for number in interruptions()}
    try:
        # A command that needs PyTorch imports it; TVM alone would do so for every command.
        import host.execution.without_torch  # noqa: F401
        from sdk.cli.main import main as run
    except Exception as error:  # noqa: BLE001 - a package of another version raises anything
        if "--verbose" in sys.argv:
            traceback.print_exc()
        sys.stderr.write(f"error: {_reason(error)}\n")
        return 1
    else:
        return run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reason(error: Exception) -> str:
    """One line: what is missing or wrong, and what mends it."""
    from device_agent.contract.text import printable
    from host.versions import wrong_version

    if (wrong := wrong_version(error)) is not None:
        return wrong
    shown = printable(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{shown}: this is the device agent alone, the host needs pip install 'edgetlm[host]'"
    return (
        f"the installed packages do not load ({type(error).__name__}: {shown}): "
        "pip install --force-reinstall 'edgetlm[host]'; --verbose shows where"
    )


def _end_process(codes: Sequence[int]) -> None:
    """End the process with the code of the command, if it came to its end and all that it wrote is out."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # which the interpreter reports at its own end
    for code in codes:
        os._exit(code)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    # While packages are imported there is nothing to clean up, and any of them might swallow an exception.
    with contextlib.suppress(OSError):  # nobody reads it, where the terminal is gone
        os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
