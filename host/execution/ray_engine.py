"""Work on the hosts of a Ray cluster, or on this machine alone as one.

Ray schedules, copies and restarts; what is added here is what it does not do: errors of ours, cores that
builds and boards do not share, and an end within seconds where the head of the cluster is gone. This is the
only module that imports Ray, and only `open_engine` imports this one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from device_agent.contract.text import printable
from host.errors import EdgeError, UserError
from host.execution.cores import BOARD_CORES, divided, pin
from host.execution.engine import TOKEN_FILE, HostLost, JobCrashed
from host.options.engine import BOARD
from host.places import config_root

T = TypeVar("T")

# Seconds between two looks at the head, and those after which it is gone if it answered none.
_LOOK_S, _GONE_S = 2.0, 10.0
# Seconds that a host may take to join.
_JOIN_S = 60.0
# Calls of one actor at once: a measurement, streams of its sessions, and what cuts them off.
_CALLS = 64
# How often a job is tried whose process ends: by a host that goes, or by what the job does.
_TRIES = 4
# How long an actor may take to remove what it keeps.
_DISCARD_S = 5.0
# How long an actor may take to be made, importing the compiler's packages included.
_MADE_S = 60.0


# Variables that an engine sets.
_SAID = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED")


def _prepare(token: str) -> None:
    """What Ray reads from the environment when it is imported, here and in the processes that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    if token:
        os.environ["RAY_AUTH_TOKEN"] = token


def _token() -> str:
    """The secret of the user's cluster; "" where the environment has one."""
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return ""
    try:
        return (config_root() / TOKEN_FILE).read_text().strip()
    except OSError as error:
        raise UserError(
            f"the cluster's token cannot be read ({error}): sdk cluster up makes it, or copy it to "
            f"{config_root() / TOKEN_FILE} from the machine that did"
        ) from error


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
        self._own_node: subprocess.Popen[bytes] | None = None
        self._actors: list[RayActor] = []
        self._ending = threading.Event()
        self.gone = ""
        # What an engine sets in the environment is not for the next one.
        self._environment = {name: os.environ.get(name) for name in _SAID}
        if address:
            _prepare(_token())
        else:
            _prepare(secrets.token_hex(32))
            # Ray's name for this is of other systems: the host's address is that of the loopback interface.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        try:
            import ray
        except ImportError as error:
            raise UserError(f"--engine ray: {error}; pip install 'edgetlm[ray]' adds it") from error
        self._ray = ray
        # What hosts report of each other goes to the command's errors otherwise, in pages that name no board;
        # no option of Ray's covers it. This class reports the losses itself.
        ray._private.worker._worker_logs_enabled = False
        try:
            if address:
                self._join(address)
            else:
                self._start(boards)
        except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            self.close()
            where = f"the cluster's head {address}" if address else "Ray on this machine"
            raise EdgeError(
                f"{where} does not answer, or takes another token ({_first_line(error)}); "
                "see sdk cluster status"
            ) from error
        self._job = ray.remote(num_cpus=1, max_retries=_TRIES - 1)(_run_job)
        self._kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=_CALLS)(
            _Hosted
        )
        self._head = str(ray.get_runtime_context().gcs_address)
        self._node = str(ray._private.worker.global_worker.node.raylet_socket_name)
        threading.Thread(target=self._watch, name="cluster", daemon=True).start()

    def _start(self, boards: Sequence[str]) -> None:
        cores = frozenset(os.sched_getaffinity(0))
        builds, _ = divided(cores, int(os.environ.get(BOARD_CORES, "1")))
        self._ray.init(
            # Not a cluster that happens to run here.
            address="local",
            num_cpus=len(builds),
            resources={BOARD + name: 1.0 for name in boards},
            include_dashboard=False,
            **_QUIET,
        )

    def _join(self, address: str) -> None:
        """Join as a host that does no work, unless this machine is one of the cluster's."""
        _reach(address)
        try:
            self._ray.init(address=address, **_QUIET)
        except (RuntimeError, ValueError, ConnectionError):
            command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}"]
            command += ["--num-cpus=0", "--block", "--disable-usage-stats"]
            self._own_node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = time.monotonic() + _JOIN_S
            while True:
                with contextlib.suppress(RuntimeError, ValueError, ConnectionError):
                    self._ray.init(address=address, **_QUIET)
                    return
                if time.monotonic() > until or self._own_node.poll() is not None:
                    raise
                time.sleep(1.0)

    def _watch(self) -> None:
        """Notice that the head is gone: Ray itself waits a minute for it, and then ends the process.

        Another head may listen in its place, of a cluster that knows nothing of this one. This machine's host
        ends then, as it does with its head.
        """
        heard = time.monotonic()
        while not self._ending.wait(_LOOK_S):
            try:
                _reach(self._head)
                _require_listening(self._node)
                heard = time.monotonic()
            except OSError as error:
                if time.monotonic() - heard >= _GONE_S:
                    self.gone = (
                        f"the cluster's head {self._head} is gone ({error}); all measurements are stored: "
                        "start it with sdk cluster up, and run the same command again"
                    )
                    return

    def cores(self) -> int:
        """See `Engine.cores`.

        Raises:
            EdgeError: there are none.
        """
        count = int(self._ray.cluster_resources().get("CPU", 0.0))
        if not count:
            raise EdgeError(
                "no host of the cluster builds programs: give one of them cores in edgetlm.toml, or wait "
                "until it has joined (sdk cluster status)"
            )
        return count

    def boards(self) -> tuple[str, ...]:
        """Names of the boards that hosts of the cluster reach."""
        names = (name for name in self._ray.cluster_resources() if name.startswith(BOARD))
        return tuple(sorted(name.removeprefix(BOARD) for name in names))

    def submit(self, function: Callable[..., T], *arguments: Any) -> RayPending:
        """See `Engine.submit`."""
        self.check()
        self.cores()
        return RayPending(self, self._job.remote(function, *arguments))

    def share(self, value: T) -> T:
        """See `Engine.share`."""
        self.check()
        shared: T = self._ray.put(value)
        return shared

    def actor(self, make: Callable[..., object], *arguments: Any, at: str = "") -> RayActor:
        """See `Engine.actor`."""
        self.check()
        resources = {}
        if at:
            known = self.boards()
            if at not in known:
                raise UserError(
                    f"no host of the cluster reaches {printable(at, 80)}; boards of the cluster are: "
                    f"{printable(', '.join(known) or 'none', 400)} (docs/scale.md)"
                )
            # A board is one thing, however many commands use it one after the other.
            resources = {BOARD + at: 0.001}
        actor = RayActor(self, self._kind.options(resources=resources).remote(make, bool(at), *arguments))
        self._actors.append(actor)
        return actor

    def check(self) -> None:
        """Refuse to go on without the head.

        Raises:
            EdgeError: it is gone.
        """
        if self.gone:
            raise EdgeError(self.gone)

    def result(self, reference: Any, timeout: float | None = None) -> Any:
        """The value that a job or a call returned; see `Pending.result`."""
        errors = self._ray.exceptions
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.check()
            left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
            try:
                return self._ray.get(reference, timeout=max(0.0, left))
            except errors.GetTimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError from None
            except errors.RayTaskError as error:
                raise error.cause from None
            except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
                raise JobCrashed(
                    f"the process of a job ended {_TRIES} times ({_first_line(error)})"
                ) from None
            except errors.RayError as error:
                raise HostLost(f"a host of the cluster is gone ({_first_line(error)})") from None

    def cancel(self, reference: Any) -> bool:
        """See `Pending.cancel`."""
        if self._ray.wait([reference], timeout=0)[0]:
            return False
        self._ray.cancel(reference)
        return True

    def close(self) -> None:
        """See `Engine.close`."""
        if self._ending.is_set():
            return
        self._ending.set()
        ray = getattr(self, "_ray", None)
        if ray is not None:
            if not self.gone:
                for actor in self._actors:
                    actor.end()
            ray.shutdown()
        if self._own_node is not None:
            self._own_node.terminate()
            self._own_node.wait()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# Its messages are for those who write programs of Ray.
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


class RayPending:
    """A job of Ray; a `host.execution.Pending`.

    Args:
        engine: that does it.
        reference: to what it returns.
    """

    def __init__(self, engine: RayEngine, reference: Any) -> None:
        self._engine = engine
        self._reference = reference

    def result(self, timeout: float | None = None, /) -> Any:
        """See `Pending.result`."""
        return self._engine.result(self._reference, timeout)

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        return self._engine.cancel(self._reference)


class RayActor:
    """An actor of Ray; a `host.execution.Actor`.

    Args:
        engine: that keeps it.
        handle: of the actor.
    """

    def __init__(self, engine: RayEngine, handle: Any) -> None:
        self._engine = engine
        self._handle = handle

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Actor.call`."""
        return self.begin(method, *arguments).result()

    def begin(self, method: str, *arguments: Any) -> RayPending:
        """See `Actor.begin`."""
        self._engine.check()
        return RayPending(self._engine, self._handle.call.remote(method, *arguments))

    def pid(self) -> int:
        """The process on its host."""
        return int(self._engine.result(self._handle.process.remote(), _MADE_S))

    def end(self) -> None:
        """See `Actor.end`."""
        with contextlib.suppress(EdgeError, TimeoutError):
            self._engine.result(self._handle.discard.remote(), _DISCARD_S)
        self._engine._ray.kill(self._handle)


class _Hosted:
    """The process of an actor, with the object that it is for."""

    def __init__(self, make: Callable[..., object], board: bool, *arguments: Any) -> None:
        if board:
            pin(to_boards=True)
        self._object = make(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._object, method)(*arguments)

    def discard(self) -> None:
        discard = getattr(self._object, "discard", None)
        if discard is not None:
            discard()

    def process(self) -> int:
        return os.getpid()


def _run_job(function: Callable[..., T], *arguments: Any) -> T:
    """A job in a process of a host, which does other jobs afterwards."""
    pin(to_boards=False)
    return function(*arguments)


def _reach(address: str) -> None:
    """Raises OSError where nothing listens."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=_LOOK_S).close()


def _require_listening(path: str) -> None:
    """Raises OSError where no process listens at a Unix socket."""
    if path not in Path("/proc/net/unix").read_text(errors="replace").split():
        raise ConnectionRefusedError("this machine's host of the cluster has ended")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return printable(lines[0] if lines else type(error).__name__, 300)
