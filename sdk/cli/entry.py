"""The entry point of the command `sdk`, with a hint where only the agent is installed."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; exit code 1 with one line where the host's packages are missing."""
    try:
        # A command that needs PyTorch imports it; TVM alone would do so for every command.
        import host.execution.without_torch  # noqa: F401
        from sdk.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: {error}: this is the device agent alone, the host needs pip install 'edgetlm[host]'\n"
        )
        return 1
    return run()
