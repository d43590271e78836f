"""One session on a device: a model or kernels in a process of their own there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.measuring import MEASURING, Plan
from device_agent.contract.text import printable
from device_agent.contract.verify import TRUST_LEVELS
from host.closing import Closing
from host.errors import DeviceError, EngineError, SessionLost, UserError
from host.model import Measurement, Start
from host.transport.replies import fields_of, measurement_of, shown, signature_of
from host.transport.wire import Connection, DisconnectedError, pack, unpack

if TYPE_CHECKING:
    import numpy as np

    from host.transport.device import Device

_CHUNK_BYTES = 64 << 20
_ONE_RUN = dict(
    warmup_s=0.0, warmup_runs=0, min_repeats=1, max_repeats=1, min_time_s=0.0, min_sample_s=0.0, energy=False
)
# A process that crashes closes its connections first, and may write a core dump before it is gone.
_DYING_S = 2.0
_GRACE_S = 120.0


@dataclass(frozen=True, eq=False)
class KernelOutputs:
    """The output buffers after one call of a kernel.

    Attributes:
        index: of the call in one inference.
        kernel: name of the function.
        values: its outputs.
    """

    index: int
    kernel: str
    values: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class KernelTime:
    """Time of one kernel in place, within the whole model.

    Attributes:
        calls: in one inference.
        seconds: of all these calls in one inference.
    """

    calls: int
    seconds: float


class Session(Closing):
    """Made by `Device.open_session`; a context manager.

    When the executor crashes, hangs past its time limit or exceeds its memory limit, the command under way
    raises SessionLost, and the next one finds a new executor, in which the model has to be loaded again.

    Attributes:
        engine: its name.
        threads: that it may use.
        warning: one line where the loaded bundle's signer is not trusted by the device; else "".
        start: how long the loaded model took to its first output; None before that, and where the agent does
            not say.
    """

    def __init__(
        self,
        device: Device,
        engine: str,
        threads: int,
        contact: Mapping[str, Any],
        time_limit_s: float,
    ) -> None:
        self.engine = engine
        self.threads = threads
        self.warning = ""
        self.start: Start | None = None
        self._load_s: float | None = None
        self._time_limit_s = time_limit_s
        self._device = device
        self._contact = _contact_of(device.name, contact)
        self._name = self._contact.session
        self._connection: Connection | None = None
        self._closed = False
        self._sensed: bool | None = None
        self._shown: Measurement | None = None

    @property
    def pid(self) -> int:
        """Process id of the present executor on the device."""
        return self._contact.pid

    @property
    def port(self) -> int:
        """The port of the present executor on the device's loopback interface."""
        return self._contact.port

    @property
    def key(self) -> str:
        """Secret of the present executor."""
        return self._contact.key

    def load(self, path: Path | str, trust: str = "signed", mapped: bool = False) -> dict[str, Any]:
        """Load a model: a bundle's directory, or a model file for engines other than tvm.

        Args:
            path: of the bundle or the file.
            trust: "signed": the device has to trust the signer of the bundle; "unsigned": it need not.
            mapped: whether the weights of a language model stay in their file's pages, even where there is
                memory for a copy in huge pages: sessions that are compared are then alike.

        Returns:
            The signature as the engine knows it: `inputs` and `outputs` with `name`, `shape`, `dtype`.

        Raises:
            UserError: there is no such level of trust.
            EngineError: the engine cannot load it.
            BundleError: the bundle is damaged, revoked, or not trusted by the device.
            SessionLost: the executor died of it.
        """
        if trust not in TRUST_LEVELS:
            raise UserError(f"--trust {trust}: use {' or '.join(TRUST_LEVELS)}")
        path = Path(path).absolute()
        if not path.exists():
            raise EngineError(f"{path} does not exist; compile or export the model first")
        return self._loaded(str(path) if self._device.shares_files else self._place(path), trust, mapped)

    def load_installed(self, path: str, trust: str = "signed") -> dict[str, Any]:
        """Load a bundle that the device has already.

        Args:
            path: on the device.
            trust: see `load`.

        Returns:
            See `load`.

        Raises:
            UserError, EngineError, BundleError, SessionLost: see `load`.
        """
        if trust not in TRUST_LEVELS:
            raise UserError(f"--trust {trust}: use {' or '.join(TRUST_LEVELS)}")
        return self._loaded(path, trust)

    def _loaded(self, where: str, trust: str, mapped: bool = False) -> dict[str, Any]:
        header = {"command": "load", "path": where, "trust": trust}
        reply, _ = self._command({**header, "mapped": True} if mapped else header)
        fields = self._fields(reply)
        self.warning = printable(reply.get("warning") or "")
        self.start, self._load_s = None, fields.seconds("load_s") if fields.has("load_s") else None
        return signature_of(fields)

    def _place(self, path: Path) -> str:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        hashes = {file.name: self._device.upload(file) for file in files}
        folder = hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest()[:16]
        reply = self._device.request("session.place", session=self._name, folder=folder, files=hashes)
        where = self._fields(reply).text("path")
        return where if path.is_dir() else f"{where}/{path.name}"

    def set_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Set the inputs of the following measurements, in the model's order.

        Raises:
            DeviceError: they do not fit the model.
        """
        descriptions, blobs = pack(inputs)
        self._shown = None
        self._command({"command": "inputs", "tensors": descriptions}, blobs)

    def run(self, inputs: Sequence[np.ndarray], function: str = "") -> list[np.ndarray]:
        """One inference.

        Args:
            inputs: in the model's order.
            function: of a language model that runs in place of main, on the same state; "" for main.

        Raises:
            EngineError: the engine fails on it.
            SessionLost: the executor died of it.
        """
        descriptions, blobs = pack(inputs)
        header: dict[str, Any] = {"command": "run", "tensors": descriptions}
        reply, blob = self._command(header | ({"function": function} if function else {}), blobs)
        if self._load_s is not None and reply.get("first_run_s") is not None:
            self.start = Start(self._load_s, self._fields(reply).seconds("first_run_s"))
        return unpack(reply.get("tensors"), blob)

    def call_s(self, inputs: Sequence[np.ndarray], function: str) -> float:
        """Seconds of a call of a language model's function beside main, on the device's clock; see `run`."""
        descriptions, blobs = pack(inputs)
        reply, _ = self._command({"command": "run", "tensors": descriptions, "function": function}, blobs)
        return self._fields(reply).seconds("run_s")

    def measure(self, inputs: Sequence[np.ndarray] | None = None, **plan: float | int | bool) -> Measurement:
        """Measure inferences, on the device's own clock, without the copies of inputs and outputs.

        Args:
            inputs: in the model's order; those of `set_inputs` if None.
            plan: `warmup_s`, `warmup_runs`, `min_repeats`, `max_repeats`, `min_time_s`, `max_time_s`,
                `min_sample_s` (shorter runs are repeated within a sample); `retries` after throttling; where
                the device has a sensor, `energy` (False for none), `idle_s`, `energy_s` and `energy_updates`
                (length of a window), `trials` (windows), `cool_c` and `cool_s` (between them), `start_c`.

        Raises:
            EngineError: the engine fails on it.
            MeasureError: it gave no sample.
            SessionLost: the executor died of it.
        """
        if inputs is not None:
            self.set_inputs(inputs)
        if not self._device.timing.repeats:
            if self._shown is not None:
                return self._shown
            plan = {**plan, **_ONE_RUN}
        header: dict[str, Any] = {"command": "measure", "plan": plan}
        if plan.get("energy", True) and self._has_sensor():
            header["time_limit_s"] = _longest_s(plan)
        reply, _ = self._command(header)
        measurement = measurement_of(reply, self._device.name)
        self._shown = None if self._device.timing.repeats else measurement
        return measurement

    def _has_sensor(self) -> bool:
        """Whether the device has a power sensor: measuring takes its time then."""
        if self._sensed is None:
            self._sensed = self._device.sensor()["unavailable"] is None
        return self._sensed

    def profile(self, inputs: Sequence[np.ndarray] | None = None, runs: int = 10) -> dict[str, KernelTime]:
        """Time of each kernel in place, by name; engine tvm only.

        Calls of the machine itself (allocation, shapes) are listed under `vm.builtin.` names.
        """
        if inputs is not None:
            self.set_inputs(inputs)
        reply, _ = self._command({"command": "profile", "runs": runs})
        return {
            shown(entry.text("name")): KernelTime(
                entry.whole("calls", 0, LIMITS.wire.runs), entry.number("seconds", 0.0)
            )
            for entry in self._fields(reply).objects("kernels")
        }

    def intermediates(self, inputs: Sequence[np.ndarray] | None = None) -> Iterator[KernelOutputs]:
        """Outputs of every kernel call of one inference, in order; engine tvm only.

        They come in pieces, each from a run of its own, so a model's whole activations are never held.
        """
        if inputs is not None:
            self.set_inputs(inputs)
        start, complete = 0, False
        while not complete:
            header = {"command": "intermediates", "start": start, "max_bytes": _CHUNK_BYTES}
            reply, blob = self._command(header)
            fields = self._fields(reply)
            values = unpack(reply.get("tensors"), blob)
            before, complete = start, fields.truth("complete")
            for call in fields.objects("calls"):
                # Calls come in order, and every piece goes on where the one before it ended.
                index = call.whole("index", start, LIMITS.wire.runs)
                count = call.whole("tensors", 0, len(values))
                yield KernelOutputs(index, shown(call.text("name")), tuple(values[:count]))
                values, start = values[count:], index + 1
            if start == before and not complete:
                raise fields.wrong("calls", "one more call, or the end of the model")

    def rpc(self) -> Any:
        """A `tvm.rpc.RPCSession` to the executor; engine tvm only, one at a time.

        Raises:
            SessionLost: the executor does not answer.
        """
        from tvm import rpc

        # Asking where the executor listens replaces a dead one, whose contact would be stale.
        self._attach()
        try:
            return rpc.connect("127.0.0.1", self._device.forward(self.port), key=self.key)
        except RuntimeError as error:
            raise self.lost(error) from error

    def lost(self, error: BaseException) -> DeviceError:
        """The error for a command that broke off: the agent is asked what became of the executor."""
        self._disconnect()
        reason = self.lost_reason() or f"the {self.engine} executor closed the connection ({error})"
        return SessionLost(f"{self._device.name}: {reason}")

    def lost_reason(self, wait_s: float = _DYING_S) -> str | None:
        """The reason for which the executor is dead; None while it lives.

        The next command finds another executor then, whichever connection the dead one was noticed on.

        Args:
            wait_s: how long its end may take that has shown already by a broken connection.

        Raises:
            DeviceError: the device went away altogether.
        """
        reply = self._device.request("session.status", session=self._name, wait_s=wait_s)
        fields = self._fields(reply)
        if not fields.has("reason"):
            return None
        self._disconnect()
        return f"the {self.engine} executor {shown(fields.text('reason'))}"

    def pause(self) -> None:
        """Stop the executor's process, so that its threads do not disturb other measurements."""
        self._device.request("session.pause", session=self._name)

    def resume(self) -> None:
        """Continue the executor's process."""
        self._device.request("session.resume", session=self._name)

    def _command(
        self, header: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()
    ) -> tuple[dict[str, Any], bytearray]:
        if self._closed:
            raise SessionLost(f"{self._device.name}: the {self.engine} session is closed; open another")
        connection = self._connection or self._connect()
        try:
            # An agent ends what works for longer; this is for one that is silent.
            silence_s = float(header.get("time_limit_s") or self._time_limit_s) + _GRACE_S
            return connection.request(header, blobs, silence_s)
        except DisconnectedError as error:
            raise self.lost(error) from error

    def _connect(self) -> Connection:
        # The agent replaces a dead executor when asked where it listens.
        self._attach()
        peer = f"{self._device.name} ({self.engine})"
        self._connection = Connection(self.port, self.key, peer, self._device.dial)
        return self._connection

    def _attach(self) -> None:
        reply = self._device.request("session.attach", session=self._name)
        self._contact = _contact_of(self._device.name, reply)

    def _fields(self, reply: Mapping[str, Any]) -> Fields:
        return fields_of(self._device.name, reply)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """End the session; its process is gone afterwards."""
        if self._closed:
            return
        self._closed = True
        self._disconnect()
        self._device.release(self, self._name)


@dataclass(frozen=True)
class _Contact:
    """The address and the secret of a session's executor."""

    session: str
    port: int
    key: str
    pid: int


def _contact_of(device: str, reply: Mapping[str, Any]) -> _Contact:
    fields = fields_of(device, reply)
    return _Contact(
        fields.name("session"),
        fields.whole("port", 1, 65535),
        fields.text("key"),
        fields.whole("pid", 1, 1 << 31),
    )


def _longest_s(plan: Mapping[str, float | int | bool]) -> float:
    """How long measuring energy may take: every window cooled for and repeated as often as is allowed."""
    asked = {**Plan()._asdict(), **plan}
    # A slow meter has a reading a second.
    window_s = max(asked["energy_s"], asked["energy_updates"], asked["max_time_s"])
    spent_s = (1 + MEASURING.longest_warmup) * asked["warmup_s"] + window_s + asked["cool_s"]
    return float(60.0 + asked["idle_s"] + (asked["trials"] + asked["retries"]) * spent_s)
