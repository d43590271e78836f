"""The entry point of the command `sdk`, with a hint where only the agent is installed."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from sdk.cli import INTERRUPTED


def main() -> int:
    """Run the command line; exit code 1 with one line where the host's packages are missing."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # A command that needs PyTorch imports it; TVM alone would do so for every command.
        import host.execution.without_torch  # noqa: F401
        from sdk.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: {error}: this is the device agent alone, the host needs pip install 'edgetlm[host]'\n"
        )
        return 1
    else:
        return run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    # While packages are imported there is nothing to clean up, and any of them might swallow an exception.
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
