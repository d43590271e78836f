"""Progress of a call from Python: shown on a terminal or in a notebook, or passed to the caller's own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from host.progress import Progress, Silence

__all__ = ["Progress", "Silence", "shown"]


@contextlib.contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The listener of a call.

    Args:
        progress: the caller's; None shows the stages on standard error if it is a terminal, or in a notebook.
    """
    if progress is not None:
        yield progress
    elif sys.stderr.isatty() or "ipykernel" in sys.modules:
        from sdk.cli.terminal import ConsoleProgress

        with ConsoleProgress(sys.stderr) as console:
            yield console
    else:
        yield Silence()
