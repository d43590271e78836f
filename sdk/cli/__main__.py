"""`python -m sdk.cli` is the command `sdk`."""

import sys

from sdk.cli.entry import command

if __name__ == "__main__":
    sys.exit(command())
