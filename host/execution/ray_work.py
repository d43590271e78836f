"""Jobs and actors of a `host.execution.ray_engine.RayEngine`, and the processes that do their work."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from host.errors import EdgeError
from host.execution.cores import pin
from host.execution.engine import HostLost, JobCrashed
from host.execution.same_version import check_version, version_here

if TYPE_CHECKING:
    from host.execution.ray_engine import RayEngine

T = TypeVar("T")

_PICKLE = pickle.HIGHEST_PROTOCOL
# How long an actor may take to remove what it keeps.
_DISCARD_S = 5.0
# How long an actor may take to be made, importing the compiler's packages included.
_MADE_S = 60.0


@dataclass(frozen=True)
class Reference:
    """To what a job or a call returns.

    Attributes:
        session: the number of the session in which it is known.
        ray: of Ray.
    """

    session: int
    ray: Any


@dataclass(frozen=True)
class Place:
    """What the host of an actor has to have.

    Attributes:
        board: name of a board that it reaches; "" for any host.
        trains: a free core, and a GPU if any host has one.
    """

    board: str
    trains: bool


class Shared:
    """A value that is copied once for each host; see `host.execution.Engine.share`.

    Args:
        value: is kept here too, for the next session.
    """

    def __init__(self, value: object) -> None:
        self._value = value
        self._reference = Reference(-1, None)
        self._lock = threading.Lock()

    def of(self, ray: Any, session: int) -> Any:
        """Ray's reference to it in a session."""
        with self._lock:
            if self._reference.session != session:
                self._reference = Reference(session, ray.put(self._value))
            return self._reference.ray


class RayJob:
    """A job of Ray; a `host.execution.Pending`. One that went with its cluster's head is begun again.

    Args:
        engine: that does it.
        function: of a module.
        arguments: of it, which may be `Shared`.
    """

    def __init__(self, engine: RayEngine, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._engine = engine
        self._work = (function, *arguments)
        self._reference = engine.begin_job(self._work)

    def result(self, timeout: float | None = None, /) -> Any:
        """See `Pending.result`; the time begins anew where the job does."""
        while True:
            try:
                return self._engine.result(self._reference, timeout)
            except (HostLost, JobCrashed):
                if not self._engine.leaves(self._reference):
                    raise
                self._reference = self._engine.begin_job(self._work)

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        try:
            return self._engine.cancel(self._reference)
        except HostLost:
            return True


class RayCall:
    """A call of a method of an actor's object; a `host.execution.Pending`.

    Args:
        engine: of the actor.
        reference: to what it returns.
    """

    def __init__(self, engine: RayEngine, reference: Reference) -> None:
        self._engine = engine
        self._reference = reference

    def result(self, timeout: float | None = None, /) -> Any:
        """See `Pending.result`."""
        return pickle.loads(self._engine.result(self._reference, timeout))

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        return self._engine.cancel(self._reference)


class RayActor:
    """An actor of Ray; a `host.execution.Actor`. With a new head of the cluster, the next call makes it anew.

    Args:
        engine: that keeps it.
        place: what its host has to have.
        arguments: of `Hosted`.
    """

    def __init__(self, engine: RayEngine, place: Place, arguments: tuple[Any, ...]) -> None:
        self._engine = engine
        self._place = place
        self._arguments = arguments
        self._lock = threading.Lock()
        self._handle = Reference(-1, None)
        self._made()

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Actor.call`."""
        return self.begin(method, *arguments).result()

    def begin(self, method: str, *arguments: Any) -> RayCall:
        """See `Actor.begin`."""
        # As one value: Ray treats each argument by itself, which takes longer than the rest of a small call.
        packed = pickle.dumps((version_here(), method, arguments), _PICKLE)
        return RayCall(self._engine, self._begun("call", packed))

    def pid(self) -> int:
        """The process on its host."""
        return int(self._engine.result(self._begun("process"), _MADE_S))

    def end(self) -> None:
        """See `Actor.end`."""
        if self._engine.left(self._handle):
            return
        with contextlib.suppress(EdgeError, TimeoutError):
            self._engine.result(self._begun("discard"), _DISCARD_S)
        with contextlib.suppress(EdgeError):
            self._engine.kill(self._handle)

    def _begun(self, method: str, *arguments: Any) -> Reference:
        return self._engine.begin_call(self._made(), method, arguments)

    def _made(self) -> Reference:
        with self._lock:
            if self._engine.left(self._handle):
                self._handle = self._engine.begin_actor(self._place, self._arguments)
            return self._handle


class Hosted:
    """The process of an actor, with the object that it is for."""

    def __init__(self, make: Callable[..., object], board: bool, *arguments: Any) -> None:
        if board:
            pin(to_boards=True)
        self._object = make(*arguments)

    def call(self, packed: bytes) -> bytes:
        """Call a method of the object; its name and arguments are packed, and so is what it returns.

        Raises:
            UserError: the command has another version.
        """
        version, method, arguments = pickle.loads(packed)
        check_version(version)
        return pickle.dumps(getattr(self._object, method)(*arguments), _PICKLE)

    def discard(self) -> None:
        """Remove what the object keeps."""
        discard = getattr(self._object, "discard", None)
        if discard is not None:
            discard()

    def process(self) -> int:
        """The number of this process."""
        return os.getpid()


def run_job(version: str, function: Callable[..., T], *arguments: Any) -> T:
    """A job in a process of a host, which does other jobs afterwards.

    Raises:
        UserError: the command has another version.
    """
    check_version(version)
    pin(to_boards=False)
    return function(*arguments)
