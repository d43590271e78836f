"""Work on the hosts of a Ray cluster, or on this machine alone as one.

Ray schedules, copies and restarts; what is added here is what it does not do: errors of ours, cores that
builds and boards do not share, and the way back where the head of the cluster is gone. Only `open_engine`
imports this module, and only `host.execution.ray_session` imports Ray.

    here --the head does not answer--> away --another head listens--> here, in another session
                                         |
                                         +--none for `_BACK_S`--> gone: the command ends

While the head is away, calls of actors fail as those of a host that ended, and jobs wait. Actors, jobs and
shared values of an earlier session are made again in the next.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from device_agent.contract.text import printable
from host.errors import EdgeError, UserError
from host.execution.engine import HostLost, JobCrashed
from host.execution.ray_session import LOOK_S, RaySession
from host.execution.ray_work import Hosted, Place, RayActor, RayJob, Reference, Shared, run_job
from host.execution.same_version import version_here
from host.options.engine import BOARD, RAY_AT

T = TypeVar("T")

# A head is away that refused so many looks one after the other, or answered none for so many seconds.
_REFUSALS, _SILENT_S = 2, 10.0
# How long a command waits for another head.
_BACK_S = 300.0
# How long one call waits for it, or for a host, and how often it looks: then the board is asked again.
_CALL_WAITS_S, _ASK_S = 15.0, 0.5
# Calls of one actor at once: a measurement, streams of its sessions, and what cuts them off.
_CALLS = 64
# How long a thread that computes keeps the interpreter from one that got an answer, which waits for it four
# times in a call while programs are proposed. Python's own 5 ms are longer than the call itself.
_SWITCH_S = 0.0001
# How often a job is tried whose process ends: by a host that goes, or by what the job does.
_TRIES = 4


class RayEngine:
    """An `host.execution.Engine` on Ray.

    Args:
        address: HOST:PORT of a cluster's head; "" starts hosts of this machine alone, which listen
            on its loopback interface and end with this process.
        boards: that this machine reaches, where it is alone.

    Raises:
        UserError: Ray is not installed, or there is no token for the cluster.
        EdgeError: the head does not answer.
    """

    remote = True

    def __init__(self, address: str = "", boards: Sequence[str] = ()) -> None:
        self.cluster = f"{RAY_AT}{address}" if address else ""
        self._actors: list[RayActor] = []
        self._ending = threading.Event()
        # Protects all that follows, and is notified when any of it changes.
        self._changed = threading.Condition(threading.RLock())
        self._away = self._gone = ""
        self._inside = self._number = 0
        self._builds = False
        self._watching: threading.Thread | None = None
        self._switch_s = sys.getswitchinterval()
        self._session = session = RaySession(address, boards)
        self._ray = ray = session.ray
        self._job = ray.remote(num_cpus=1, max_retries=_TRIES - 1)(run_job)
        self._kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=_CALLS)(
            Hosted
        )
        self._faults = (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError)
        try:
            session.open()
        except self._faults as error:
            self.close()
            where = f"the cluster's head {address}" if address else "Ray on this machine"
            raise EdgeError(
                f"{where} does not answer, or takes another token ({_first_line(error)}); "
                "see sdk cluster status"
            ) from error
        sys.setswitchinterval(_SWITCH_S)
        self._watching = threading.Thread(target=self._watch, name="cluster", daemon=True)
        self._watching.start()

    # -- the head

    def _watch(self) -> None:
        """Notice that the head is gone: Ray itself waits a minute for it, and then ends the process."""
        heard, refused = time.monotonic(), 0
        while not self._ending.wait(LOOK_S):
            try:
                self._session.look()
                heard, refused = time.monotonic(), 0
                continue
            except ConnectionRefusedError as error:
                refused, reason = refused + 1, str(error)
            except OSError as error:
                reason = str(error)
            if refused >= _REFUSALS or time.monotonic() - heard >= _SILENT_S:
                if not self._come_back(reason):
                    return
                heard, refused = time.monotonic(), 0

    def _come_back(self, reason: str) -> bool:
        """Leave the session, and open another as soon as there is a head; whether there was."""
        with self._changed:
            self._away = f"the cluster's head {self._session.head} is gone ({printable(reason, 200)})"
            self._changed.notify_all()
            # Nobody may be in a call of Ray when its session ends; each call ends within `LOOK_S`.
            self._changed.wait_for(lambda: not self._inside)
        self._session.leave()
        until = time.monotonic() + _BACK_S
        while time.monotonic() < until:
            if self._session.may_open() and self._opened():
                with self._changed:
                    self._number += 1
                    self._away = ""
                    self._changed.notify_all()
                return True
            if self._ending.wait(1.0):
                break
        with self._changed:
            self._gone = (
                f"{self._away} and did not come back; all measurements are stored: "
                "start it with sdk cluster up, and run the same command again"
            )
            self._changed.notify_all()
        return False

    def _opened(self) -> bool:
        try:
            self._session.open()
        except self._faults:
            # It may still be starting, or its hosts may be.
            self._session.leave()
            return False
        return True

    @contextmanager
    def _calling(self, session: int | None = None) -> Iterator[Any]:
        """Calls of Ray, whose session does not end meanwhile.

        Args:
            session: in which what is called is known; None waits a while for a head, if there is none.

        Raises:
            HostLost: the head is away, or what is called went with one of before.
            EdgeError: it did not come back.
        """
        with self._changed:
            if session is None:
                self._changed.wait_for(
                    lambda: not self._away or self._gone or self._ending.is_set(), _CALL_WAITS_S
                )
            if self._gone:
                raise EdgeError(self._gone)
            if self._away or session not in (None, self._number):
                raise HostLost(self._away or "the host of before is gone: the cluster has a new head")
            self._inside += 1
        try:
            yield self._ray
        except (self._ray.exceptions.RayError, OSError) as error:
            raise HostLost(f"a host of the cluster is gone ({_first_line(error)})") from error
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def left(self, reference: Reference) -> bool:
        """Whether what a reference is to went with a head that is gone."""
        with self._changed:
            return bool(self._away) or reference.session != self._number

    def leaves(self, reference: Reference) -> bool:
        """The same, also where the head is gone, and this is about to be noticed."""
        try:
            self._session.look()
        except OSError:
            with self._changed:
                self._changed.wait_for(lambda: self.left(reference), _SILENT_S + 2 * LOOK_S)
        return self.left(reference)

    # -- what there is

    def cores(self) -> int:
        """See `Engine.cores`.

        Raises:
            EdgeError: there are none.
        """
        with self._calling() as ray:
            count = int(ray.cluster_resources().get("CPU", 0.0))
        if not count:
            raise EdgeError(
                "no host of the cluster builds programs: give one of them cores in edgetlm.toml, or wait "
                "until it has joined (sdk cluster status)"
            )
        return count

    def boards(self) -> tuple[str, ...]:
        """Names of the boards that hosts of the cluster reach."""
        with self._calling() as ray:
            names = [name for name in ray.cluster_resources() if name.startswith(BOARD)]
        return tuple(sorted(name.removeprefix(BOARD) for name in names))

    # -- work

    def submit(self, function: Callable[..., T], *arguments: Any) -> RayJob:
        """See `Engine.submit`."""
        if not self._builds:
            self.cores()
            # Asked once: a job that no host is left for waits until one comes back.
            self._builds = True
        return RayJob(self, function, arguments)

    def share(self, value: T) -> T:
        """See `Engine.share`."""
        return cast("T", Shared(value))

    def actor(
        self, make: Callable[..., object], *arguments: Any, at: str = "", trains: bool = False
    ) -> RayActor:
        """See `Engine.actor`."""
        if at and at not in (known := self.boards()):
            raise UserError(
                f"no host of the cluster reaches {printable(at, 80)}; boards of the cluster are: "
                f"{printable(', '.join(known) or 'none', 400)} (docs/scale.md)"
            )
        actor = RayActor(self, Place(at, trains), (make, bool(at), *arguments))
        self._actors.append(actor)
        return actor

    # -- what `host.execution.ray_work` needs

    def begin_job(self, work: Sequence[Any]) -> Reference:
        """Begin a job: its function and arguments. It waits for the head, if that is away."""
        while True:
            try:
                with self._calling() as ray:
                    number = self._number
                    found = [one.of(ray, number) if isinstance(one, Shared) else one for one in work]
                    return Reference(number, self._job.remote(version_here(), *found))
            except HostLost:
                # It is either about to be noticed that the head is gone, or another is waited for.
                if self._ending.wait(1.0):
                    raise

    def begin_actor(self, place: Place, arguments: Sequence[Any]) -> Reference:
        """Make an actor; HostLost where no host reaches its board, nor will within a while."""
        options: dict[str, Any] = {}
        if place.board:
            until = time.monotonic() + _CALL_WAITS_S
            while place.board not in self.boards():
                # Hosts join after their head.
                if self._ending.wait(_ASK_S) or time.monotonic() > until:
                    raise HostLost(
                        f"no host of the cluster reaches {printable(place.board, 80)} at the moment"
                    )
            # A board is one thing, however many commands use it one after the other.
            options["resources"] = {BOARD + place.board: 0.001}
        with self._calling() as ray:
            if place.trains:
                options |= {"num_cpus": 1, "num_gpus": int(ray.cluster_resources().get("GPU", 0.0) >= 1.0)}
            return Reference(self._number, self._kind.options(**options).remote(*arguments))

    def begin_call(self, actor: Reference, method: str, arguments: Sequence[Any]) -> Reference:
        """Call a method of an actor."""
        with self._calling(actor.session):
            return Reference(actor.session, getattr(actor.ray, method).remote(*arguments))

    def result(self, reference: Reference, timeout: float | None = None) -> Any:
        """The value that a job or a call returned; see `Pending.result`."""
        errors = self._ray.exceptions
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LOOK_S if until is None else min(LOOK_S, until - time.monotonic())
            with self._calling(reference.session) as ray:
                try:
                    return ray.get(reference.ray, timeout=max(0.0, left))
                except errors.GetTimeoutError:
                    late = until is not None and time.monotonic() >= until
                except errors.RayTaskError as error:
                    failure = error.cause
                    break
                except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
                    failure = JobCrashed(f"the process of a job ended {_TRIES} times ({_first_line(error)})")
                    break
            if late:
                raise TimeoutError
        raise failure from None

    def cancel(self, reference: Reference) -> bool:
        """See `Pending.cancel`."""
        with self._calling(reference.session) as ray:
            if ray.wait([reference.ray], timeout=0)[0]:
                return False
            ray.cancel(reference.ray)
            return True

    def kill(self, actor: Reference) -> None:
        """End the process of an actor."""
        with self._calling(actor.session) as ray:
            ray.kill(actor.ray)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._ending.is_set():
            return
        for actor in self._actors:
            actor.end()
        with self._changed:
            self._ending.set()
            self._changed.notify_all()
        if self._watching is not None:
            self._watching.join()
        sys.setswitchinterval(self._switch_s)
        self._session.close()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return printable(lines[0] if lines else type(error).__name__, 300)
