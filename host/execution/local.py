"""Work in this process: a job runs in the thread that begins it, and an actor is an object."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from host.execution.cores import usable_cores

T = TypeVar("T")


class LocalEngine:
    """An `host.execution.Engine` without processes of its own.

    Whoever builds several programs at once has threads for that already, with the priority that suits the
    measurements of the machine; the compiler runs outside of the interpreter lock.
    """

    remote = False
    cluster = ""

    def cores(self) -> int:
        """Cores of this machine that this process may use."""
        return usable_cores()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """See `Engine.submit`: done when it returns."""
        return _done(function, *arguments)

    def share(self, value: T) -> T:
        """See `Engine.share`: the value itself."""
        return value

    def actor(
        self, make: Callable[..., object], *arguments: Any, at: str = "", trains: bool = False
    ) -> LocalActor:
        """See `Engine.actor`."""
        return LocalActor(make(*arguments))

    def close(self) -> None:
        """Nothing is left to end."""


class LocalActor:
    """An object of this process.

    Args:
        target: the object.
    """

    def __init__(self, target: object) -> None:
        self._target = target

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Actor.call`."""
        return getattr(self._target, method)(*arguments)

    def begin(self, method: str, *arguments: Any) -> Future[Any]:
        """See `Actor.begin`: done when it returns."""
        return _done(self.call, method, *arguments)

    def end(self) -> None:
        """Nothing is left to end."""


def _done(function: Callable[..., T], *arguments: Any) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:  # noqa: BLE001 - raised again by `result`
        future.set_exception(error)
    return future
