"""The entry point of the command `sdk`, with a hint where packages are missing or of the wrong version."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType

from sdk.cli import INTERRUPTED


def main() -> int:
    """Run the command line; exit code 1 with one line where the host's packages are missing or wrong."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
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


def _leave(_signal: int, _frame: FrameType | None) -> None:
    # While packages are imported there is nothing to clean up, and any of them might swallow an exception.
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
