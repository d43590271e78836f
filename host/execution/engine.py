"""The interface of execution: jobs of one core, and objects that stay on one host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from host.errors import DeviceError, EdgeError

# Below the user's configuration: the secret of a cluster.
TOKEN_FILE = "cluster-token"

# Variables of Ray: what every process that does work imports before the work, and that nobody reads what each
# task did when, which processes would send to the head and the head would keep.
PROCESSES = {
    "RAY_preload_python_modules": "host.execution.without_torch",
    "RAY_task_events_report_interval_ms": "0",
}

# Characters of a secret: one of fewer could be guessed, and one of more is another file.
_LEAST_TOKEN, _LONGEST_TOKEN = 16, 1024

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class HostLost(DeviceError):
    """The host that does some work, or the way to it, is gone: no program and no board is at fault."""


class JobCrashed(EdgeError):
    """The process of a job ended each time that it was tried, on one host or on others."""


class Pending(Protocol[T_co]):
    """The result of a job that may still be running."""

    def result(self, timeout: float | None = None, /) -> T_co:
        """The value that the job returned; raises the exception that it raised.

        Raises:
            TimeoutError: it has not ended after so many seconds.
            HostLost: the host that did it is gone.
        """

    def cancel(self) -> bool:
        """Drop it if it has not begun; whether that was so."""


class Actor(Protocol):
    """An object on one host, whose methods are called from here, from several threads.

    It is made anew where it ended, without what it knew: a call that was under way raises HostLost and is
    never repeated, so that nothing is done twice.
    """

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and wait.

        Raises:
            HostLost: the object or its host ended meanwhile, or has not been made yet.
        """

    def begin(self, method: str, *arguments: Any) -> Pending[Any]:
        """Call a method and return at once; the result is awaited with `Pending.result`."""

    def end(self) -> None:
        """End the actor's process; later calls of it fail."""


class Engine(Protocol):
    """Runs jobs, and keeps actors.

    Attributes:
        remote: whether work runs in other processes, perhaps of other hosts, which share no memory with this
            one: functions are those of modules, and arguments are copied.
        cluster: the name by which another process joins the same hosts (`open_engine`); "" where none can.
    """

    remote: bool
    cluster: str

    def cores(self) -> int:
        """The number of jobs that run at the same time."""

    def submit(self, function: Callable[..., T], *arguments: Any) -> Pending[T]:
        """Begin a job of one core; one whose host is lost is done again by another host."""

    def share(self, value: T) -> T:
        """A reference that many jobs get in place of a value, which is then copied once for each host."""

    def actor(
        self, make: Callable[..., object], *arguments: Any, at: str = "", trains: bool = False
    ) -> Actor:
        """Make an object on a host.

        Args:
            make: makes it: a class or a function of a module. It does nothing that can fail.
            arguments: of `make`.
            at: name of a board that the host has to reach; "" for any host.
            trains: whether it has a core for itself, and a GPU if any host has one.

        Raises:
            UserError: no host reaches this board.
        """

    def close(self) -> None:
        """End every job and every actor of this process; a second call does nothing."""


def read_token(path: Path) -> str:
    """The secret of a cluster in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds none.
    """
    with path.open("rb") as file:
        text = file.read(_LONGEST_TOKEN + 1).decode("ascii", "replace").strip()
    if not _LEAST_TOKEN <= len(text) <= _LONGEST_TOKEN or not all("!" <= one <= "~" for one in text):
        raise ValueError(f"it holds no word of {_LEAST_TOKEN} to {_LONGEST_TOKEN} ASCII characters")
    return text
