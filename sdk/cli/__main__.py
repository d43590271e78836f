"""`python -m sdk.cli` is the command `sdk`."""

import sys

from sdk.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
