"""Times of single kernels on a device, through TVM RPC."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from host.closing import Closing
from host.errors import MeasureError, SessionLost
from host.model import Measurement
from host.transport.replies import measurement_of

if TYPE_CHECKING:
    import numpy as np

    from host.transport.session import Session

_REMOTE_ERROR = "Error caught from RPC call"

ArgumentSpec = tuple[Sequence[int], str]


class KernelRunner(Closing):
    """Measures kernels in one session, over one RPC connection; a context manager.

    A kernel that crashes, hangs or eats memory costs its own measurement (SessionLost): the next one finds a
    new executor.

    Args:
        session: of the engine tvm.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._remote: Any = None
        self._measure: Any = None

    def measure(
        self,
        library: Path,
        function: str,
        arguments: Sequence[ArgumentSpec],
        repeat: int = 5,
        number: int = 1,
        min_repeat_ms: float = 20.0,
        max_s: float = 10.0,
        flush_bytes: int = 0,
        seed: int = 0,
        device: str = "cpu",
    ) -> Measurement:
        """Time one kernel with random arguments, made on the device.

        Args:
            library: shared library, on the host.
            function: name of the kernel in it.
            arguments: shape and dtype of each.
            repeat: samples.
            number: calls in a sample, at least.
            min_repeat_ms: length of a sample, at least, in milliseconds.
            max_s: stop early after this long; one sample is always taken.
            flush_bytes: clear so much cache before each sample, which is one call then; 0 keeps the
                caches warm.
            seed: of the arguments.
            device: "cpu", or "cuda" for a kernel of the GPU.

        Raises:
            MeasureError: the kernel cannot be loaded or refuses its arguments.
            SessionLost: it crashed, hung or used too much memory.
        """
        specification = {
            "repeat": repeat,
            "number": number,
            "min_repeat_ms": min_repeat_ms,
            "max_s": max_s,
            "flush_bytes": flush_bytes,
            "seed": seed,
            "device": device,
            "arguments": [[list(shape), dtype] for shape, dtype in arguments],
        }
        try:
            text = self._call(library, function, json.dumps(specification))
        except Exception as error:  # tvm_ffi raises any registered class, by name
            raise self._failure(function, error) from error
        try:
            reply = parse(text.encode("utf-8", "surrogatepass"), LIMITS.wire.header_bytes, "the answer")
        except ValueError as error:
            raise MeasureError(f"kernel {function} cannot be measured: {error}") from error
        if not isinstance(reply, dict):
            raise MeasureError(f"kernel {function} cannot be measured: the answer is no object")
        return measurement_of(reply)

    def run(self, library: Path, function: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Call one kernel once; returns its arguments as they are afterwards, outputs among them.

        Args:
            library: shared library, on the host.
            function: name of the kernel in it.
            arrays: every argument, those that are written too.

        Raises:
            MeasureError: the kernel cannot be loaded or refuses its arguments.
            SessionLost: it crashed, hung or used too much memory.
        """
        import tvm

        try:
            module = self._load(library)
            device = self._remote.cpu()
            tensors = [tvm.runtime.tensor(array, device) for array in arrays]
            module.get_function(function, query_imports=True)(*tensors)
            return [tensor.numpy() for tensor in tensors]
        except Exception as error:  # tvm_ffi raises any registered class, by name
            raise self._failure(function, error) from error

    def _call(self, library: Path, function: str, specification: str) -> str:
        module = self._load(library)
        return str(self._measure(module, function, specification))

    def _load(self, library: Path) -> Any:
        if self._remote is None:
            self._remote = self._session.rpc()
            self._measure = self._remote.get_function("edgetlm.measure")
        data = library.read_bytes()
        name = f"{hashlib.sha256(data).hexdigest()[:16]}.so"
        self._remote.upload(bytearray(data), name)
        module = self._remote.load_module(name)
        # The library is mapped by now; searches must not fill the device.
        self._remote.remove(name)
        return module

    def _failure(self, function: str, error: Exception) -> Exception:
        if isinstance(error, SessionLost):
            return error
        # The server reports what a function raised; any other error means that the connection broke.
        lost = self._session.lost_reason(0.0 if _REMOTE_ERROR in str(error) else 2.0)
        if lost is not None:
            self._remote = self._measure = None
            return SessionLost(f"kernel {function}: {lost}")
        reason = [line.strip() for line in str(error).splitlines() if line.strip()]
        return MeasureError(f"kernel {function} cannot be measured: {reason[-1] if reason else error!r}")

    def close(self) -> None:
        """End the connection; what is left of it in the traceback of an error does no harm."""
        remote, self._remote, self._measure = self._remote, None, None
        if remote is not None:
            remote.get_function("CloseRPCConnection")()


def measure_kernel(
    session: Session, library: Path, function: str, arguments: Sequence[ArgumentSpec], **plan: Any
) -> Measurement:
    """Time one kernel over a connection of its own; see `KernelRunner.measure`.

    Raises:
        MeasureError: the kernel cannot be loaded or refuses its arguments.
        SessionLost: it crashed, hung or used too much memory.
    """
    with KernelRunner(session) as runner:
        return runner.measure(library, function, arguments, **plan)
