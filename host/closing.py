"""Things that are closed at the end of a `with` block, and processes that are ended."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


class Closing(ABC):
    """An object with `close`, which `with` calls however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def end_process(process: subprocess.Popen[Any], seconds: float) -> None:
    """End a process, by force where it is still there after so many seconds; more than once is no error."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
