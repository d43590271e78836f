"""The process of one session, which runs models and kernels. If it crashes, the daemon continues.

The daemon starts it as `python -m device_agent.execute.executor` with a JSON specification on stdin:
`engine`, `threads`, `key`, `workdir`, `parent_pid`, `system_root`, `trust_file`, `meter` (command line of the
process that reads power sensors). The executor writes one JSON line to stdout (`port`, or `error`). After
that, it writes a short line whenever it begins to work (`B channel limit`) and when it ends (`I channel`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from device_agent.board.machine import Machine
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import MANIFEST
from device_agent.contract.measuring import MEASURING
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.text import printable
from device_agent.errors import AgentError, ClosedError
from device_agent.execute import engines
from device_agent.measure.measurement import Meter, plan_of
from device_agent.measure.meter_client import meter_for
from device_agent.store.opened_bundle import OpenedBundle, open_bundle
from device_agent.wire import frames
from device_agent.wire.frames import Header, TensorData
from device_agent.wire.listener import Listener, configure_connection, refuse, write_stderr
from device_agent.wire.shared_token import SharedToken

_PR_SET_PDEATHSIG = 1
# Of device_agent.execute.rpc_server, which only sessions of TVM import.
_RPC_MAGIC = PROTOCOL.rpc.magic.to_bytes(4, "little")
_LIMITS = LIMITS.wire
Reply = Tuple[Header, List[frames.Buffer]]


class Status:
    """Reports to the daemon when work begins and ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._busy: Dict[str, bool] = {}

    def announce(self, fields: Dict[str, Any]) -> None:
        """Writes the first line: the port that the executor listens on, or the error."""
        os.write(self._descriptor, (json.dumps(fields) + "\n").encode())

    def set(self, channel: str, busy: bool, limit_s: float = 0.0) -> None:
        """Reports that work on a channel begins or ends. A limit of 0 means the limit of the session."""
        with self._lock:
            if self._busy.get(channel, False) != busy:
                self._busy[channel] = busy
                line = "B %s %g\n" % (channel, limit_s) if busy else "I %s\n" % channel
                os.write(self._descriptor, line.encode())


class Commands:
    """The commands of a session, one method for each. One thread at a time has the loaded model.

    Args:
        name: name of the engine.
        engine: engine from `device_agent.execute.engines`.
        meter: measures calls.
        threads: number of threads for the engine.
        keys: file of the keys whose bundles may be loaded.
    """

    def __init__(self, name: str, engine: Any, meter: Meter, threads: int, keys: str) -> None:
        self._engine_name = name
        self._engine = engine
        self._meter = meter
        self._threads = threads
        self._keys = keys
        self._loaded = False
        self._bound = False
        self._ran = False
        self._turn = threading.Lock()

    def dispatch(self, header: Header, blob: bytearray) -> Reply:
        """Runs one command.

        Raises:
            AgentError: the failure that the host gets.
        """
        command = frames.fields_of(header).name("command")
        commands = (self.load, self.inputs, self.run, self.measure, self.profile, self.intermediates)
        method = {one.__name__: one for one in commands}.get(command)
        if method is None:
            raise AgentError("bad_request", "unknown command %s of a session" % printable(command))
        with self._turn:
            return method(header, blob)

    @contextlib.contextmanager
    def model(self) -> Iterator[Any]:
        """Lends the virtual machine of the loaded model to another thread; commands wait for its end.

        Raises:
            AgentError: no model is loaded, or no inputs are set.
        """
        with self._turn:
            self._need_inputs()
            yield self._engine.machine

    def load(self, header: Header, _blob: bytearray) -> Reply:
        """Loads the bundle at `path` with `trust` in its signer and its weights `mapped`, or a model file.

        The reply has `load_s`: seconds in which files were read and checked and the engine was made ready.
        """
        begin = time.monotonic()
        fields = frames.fields_of(header, "load")
        path, trust = fields.text("path"), fields.text("trust", standard="signed")
        if not os.path.exists(path):
            raise AgentError("bad_request", "%s is not on the device" % printable(path))
        self._loaded = self._bound = self._ran = False
        warning = None
        if hasattr(self._engine, "load_bundle") or os.path.isfile(os.path.join(path, MANIFEST)):
            opened = open_bundle(path, trust, self._keys)
            warning = opened.warning
            signature = self._load_bundle(opened, fields.truth("mapped", standard=False))
        else:
            signature = self._engine.load(path, self._threads)
        self._loaded = True
        reply: Header = {"signature": signature, "load_s": time.monotonic() - begin}
        return {**reply, **({"warning": warning} if warning else {})}, []

    def _load_bundle(self, opened: OpenedBundle, mapped: bool) -> Dict[str, Any]:
        directory, manifest = opened.bundle.directory, opened.bundle.manifest
        if manifest.backend != self._engine_name:
            raise AgentError(
                "bad_request",
                "%s is a bundle of backend %s, not %s" % (directory, manifest.backend, self._engine_name),
            )
        if hasattr(self._engine, "load_bundle"):
            return dict(self._engine.load_bundle(opened, self._threads, mapped))
        return dict(self._engine.load(os.path.join(directory, manifest.model), self._threads))

    def inputs(self, header: Header, blob: bytearray) -> Reply:
        """Sets the inputs of the following runs."""
        self._need_model()
        self._engine.bind(frames.split_tensors(header.get("tensors"), blob))
        self._bound = True
        return {}, []

    def run(self, header: Header, blob: bytearray) -> Reply:
        """Runs one inference, on the `tensors` of the request or else on the inputs set before.

        The reply to the first one after loading has `first_run_s`, its seconds without the copies. Named by
        `function`, one of a language model beside main runs, and the reply has its seconds, `run_s`.
        """
        if header.get("function") is not None:
            self._need_model()
            self._only_tvm("call")
            given, begin = frames.split_tensors(header.get("tensors"), blob), time.monotonic()
            self._engine.call(frames.fields_of(header, "run").name("function"), given)
            return _tensor_reply({"run_s": time.monotonic() - begin}, self._engine.outputs())
        if header.get("tensors") is not None:
            self.inputs(header, blob)
        first, begin = self._need_inputs(), time.monotonic()
        self._engine.invoke()
        spent = {"first_run_s": time.monotonic() - begin} if first else {}
        return _tensor_reply(spent, self._engine.outputs())

    def measure(self, header: Header, _blob: bytearray) -> Reply:
        """Measures inferences by the `plan` of the request; on a GPU, `conditions` say how kernels start."""
        self._need_inputs()
        fields = frames.fields_of(header, "measure")
        plan = fields.object("plan").values if fields.has("plan") else {}
        reply = self._meter.of_engine(self._engine, plan_of(plan))
        if launch := getattr(self._engine, "launch", ""):
            reply["conditions"] = dict(reply["conditions"], launch=launch)
        return reply, []

    def profile(self, header: Header, _blob: bytearray) -> Reply:
        """Measures the time of each kernel inside the model."""
        self._need_inputs()
        self._only_tvm("profile")
        runs = frames.fields_of(header, "profile").whole("runs", 1, _LIMITS.runs, MEASURING.profile_runs)
        return {"kernels": self._engine.profile(runs)}, []

    def intermediates(self, header: Header, _blob: bytearray) -> Reply:
        """Returns outputs of kernels from call `start` on, until `max_bytes` is reached."""
        self._need_inputs()
        self._only_tvm("intermediates")
        fields = frames.fields_of(header, "intermediates")
        start = fields.whole("start", 0, _LIMITS.runs, 0)
        limit = fields.whole("max_bytes", 0, _LIMITS.blob_bytes, _LIMITS.intermediate_bytes)
        calls, tensors, complete = self._engine.intermediates(start, limit)
        return _tensor_reply({"calls": calls, "complete": complete}, tensors)

    def _need_model(self) -> None:
        if not self._loaded:
            raise AgentError("bad_request", "no model is loaded in this session; load one first")

    def _need_inputs(self) -> bool:
        """Whether the model has not run since it was loaded; the caller then runs it."""
        self._need_model()
        if not self._bound:
            raise AgentError("bad_request", "no inputs are set in this session; send some first")
        first, self._ran = not self._ran, True
        return first

    def _only_tvm(self, command: str) -> None:
        if not hasattr(self._engine, command):
            raise AgentError("bad_request", "%s is possible with the tvm engine only" % command)


def _tensor_reply(fields: Header, tensors: List[TensorData]) -> Reply:
    return dict(fields, tensors=frames.describe_tensors(tensors)), [tensor.data for tensor in tensors]


class Executor:
    """The listener and its two kinds of client, frames and RPC. Each kind has one client at a time.

    The main thread serves frames, because TVM has a thread pool for each calling thread. Another thread
    serves RPC.
    """

    def __init__(self, specification: Dict[str, Any], status: Status) -> None:
        self._key = str(specification["key"])
        self._workdir = str(specification["workdir"])
        self._rpc = str(specification["engine"]) == "tvm"
        self._status = status
        self._waiting: queue.Queue[socket.socket] = queue.Queue()
        self._frames_taken = threading.Lock()
        self._rpc_taken = threading.Lock()
        threads = int(specification["threads"])
        root = str(specification["system_root"])
        machine = Machine(root)
        engine = engines.create(str(specification["engine"]))
        meter = Meter(machine, meter_for(specification.get("meter"), machine, root), threads)
        name, keys = str(specification["engine"]), str(specification["trust_file"])
        self._commands = Commands(name, engine, meter, threads, keys)
        if self._rpc:
            self._register_rpc(machine, threads, meter)
        self._listener = Listener(self._missing, self._admit)

    def _register_rpc(self, machine: Machine, threads: int, meter: Meter) -> None:
        # Imported for this engine only, because the others need no TVM on the board.
        from device_agent.execute import kernels, rpc_server, variants

        kernel_meter = kernels.KernelMeter(machine, threads, meter)
        variant_meter = variants.VariantMeter(machine, threads)

        def measure_variants(specification: str, *libraries: Any) -> str:
            with self._commands.model() as model:
                return variant_meter.measure(model, specification, libraries)

        functions: Dict[str, Callable[..., Any]] = {
            "edgetlm.measure": kernel_meter.measure,
            "edgetlm.measure_variants": measure_variants,
        }
        rpc_server.register(self._workdir, functions)

    def run(self) -> None:
        """Serves until the process is killed."""
        self._listener.open()
        self._status.announce({"port": self._listener.port})
        while True:
            connection = self._waiting.get()
            try:
                self._serve_frames(connection)
            except (OSError, ClosedError):
                pass  # the client disconnected; the daemon decides what happens to the session
            except AgentError as error:
                # The received bytes are not a frame, so nothing after them can be understood.
                refuse(connection, [frames.frame(frames.error_reply(error))])
            except Exception as error:  # noqa: BLE001 - an error of one client only; wait for the next one
                write_stderr("a client was dropped, for which this executor has an error: %r" % error)
            finally:
                connection.close()
                self._frames_taken.release()

    def _missing(self, data: bytes) -> int:
        if self._rpc and data[:4] == _RPC_MAGIC:
            from device_agent.execute import rpc_server

            return rpc_server.missing(data)
        return frames.hello_missing(data)

    def _admit(self, connection: socket.socket, data: bytes) -> None:
        """Checks the key. Work that may have to wait runs in a separate thread."""
        if self._rpc and data[:4] == _RPC_MAGIC:
            from device_agent.execute import rpc_server

            if not rpc_server.knows(data, self._key):
                refuse(connection, [rpc_server.MISMATCH])
                return
            target = self._greet_rpc
        else:
            try:
                frames.check_hello(data, SharedToken(self._key).admit)
            except AgentError as error:
                refuse(connection, [frames.frame(frames.error_reply(error))])
                return
            target = self._greet_frames
        configure_connection(connection)
        threading.Thread(target=target, args=(connection,), daemon=True).start()

    def _greet_frames(self, connection: socket.socket) -> None:
        if not self._frames_taken.acquire(timeout=PROTOCOL.wire.leaving_s):
            error = AgentError("busy", "another client is connected to this session")
            refuse(connection, [frames.frame(frames.error_reply(error))])
            return
        try:
            frames.send(connection, {"ok": True, "schema": frames.SCHEMA})
        except OSError:
            connection.close()  # the client disconnected before it was greeted
            self._frames_taken.release()
        else:
            self._waiting.put(connection)

    def _greet_rpc(self, connection: socket.socket) -> None:
        from device_agent.execute import rpc_server

        with connection:
            if not self._rpc_taken.acquire(timeout=PROTOCOL.wire.leaving_s):
                refuse(connection, [rpc_server.DUPLICATE])
                return
            try:
                connection.sendall(rpc_server.WELCOME)
                rpc_server.serve(connection, lambda busy: self._status.set("rpc", busy))
            except OSError:
                pass  # the client disconnected
            finally:
                self._rpc_taken.release()

    def _serve_frames(self, connection: socket.socket) -> None:
        while True:
            header = frames.receive_header(connection)
            size = frames.blob_bytes(header, _blob_limit(header))
            limit_s = frames.fields_of(header).seconds("time_limit_s", 0.0)
            blob = frames.receive_exact(connection, size)
            self._status.set("frames", True, limit_s)
            try:
                fields, blobs = answer(self._commands, header, blob)
            finally:
                self._status.set("frames", False)
            frames.send(connection, fields, blobs)


def _blob_limit(header: Header) -> int:
    return frames.most_tensor_bytes() if header.get("command") in ("inputs", "run") else 0


def answer(commands: Commands, header: Header, blob: bytearray) -> Reply:
    """The reply to one request, or the error as a reply: a session survives any error of a model."""
    command = printable(header.get("command"), _LIMITS.name_characters)
    try:
        fields, blobs = commands.dispatch(header, blob)
    except AgentError as error:
        return frames.error_reply(error), []
    except MemoryError:
        return frames.error_reply(AgentError("engine", "out of memory in %s" % command)), []
    except (KeyError, TypeError, ValueError) as error:
        return frames.error_reply(AgentError("bad_request", "%s: %r" % (command, error))), []
    except Exception as error:  # noqa: BLE001 - a model's code may raise any exception
        return frames.error_reply(AgentError("engine", "%s failed: %s" % (command, error))), []
    return dict(fields, ok=True), blobs


def die_with_parent(parent_pid: int) -> None:
    """Makes the kernel kill this process when its parent ends for any reason."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def main() -> int:
    """Runs the executor; see the module."""
    # Libraries print to stdout, so the daemon's pipe is moved to another descriptor.
    status = Status(os.dup(1))
    os.dup2(2, 1)
    specification = json.loads(sys.stdin.readline())
    die_with_parent(int(specification["parent_pid"]))
    # A crash is reported without a core dump, which would fill the board's card.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        executor = Executor(specification, status)
    except AgentError as error:
        status.announce(frames.error_reply(error))
        return 1
    # TVM's own handler resolves names for a backtrace that nobody reads. This takes longer than most runs.
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    executor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
