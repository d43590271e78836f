"""Times of single kernels on a device, through TVM RPC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.limits import LIMITS
from host.closing import Closing
from host.errors import MeasureError
from host.measure.connection import LibraryConnection
from host.model import Measurement
from host.transport.replies import measurement_of

if TYPE_CHECKING:
    import numpy as np

    from host.transport.session import Session

ArgumentSpec = tuple[Sequence[int], str]


class KernelRunner(Closing):
    """Measures kernels in one session, over one RPC connection; a context manager.

    A kernel that crashes, hangs or eats memory costs its own measurement (SessionLost): the next one finds a
    new executor.

    Args:
        session: of the engine tvm.
    """

    def __init__(self, session: Session) -> None:
        self._libraries = LibraryConnection(session)

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
        work: Mapping[str, float] | None = None,
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
            work: measure the energy of a call too, in a loop with warm caches; the measurement says why there
                is none, where that is so. It is what the program does in one call
                (`host.schedules.work.ProgramWork`; {} for unknown): a simulated board takes its power from
                this, a real one ignores it. None measures no energy.

        Raises:
            MeasureError: the kernel cannot be loaded or refuses its arguments, or the device's time or energy
                is impossible.
            SessionLost: it crashed, hung or used too much memory.
        """
        specification: dict[str, Any] = {
            "repeat": repeat,
            "number": number,
            "min_repeat_ms": min_repeat_ms,
            "max_s": max_s,
            "flush_bytes": flush_bytes,
            "seed": seed,
            "device": device,
            "arguments": [[list(shape), dtype] for shape, dtype in arguments],
        }
        if work is not None:
            specification.update(energy=True, program=dict(work))
        what = f"kernel {function}"
        with self._libraries.measuring(what):
            module = self._libraries.load(library)
            reply = self._libraries.ask(what, "edgetlm.measure", module, function, json.dumps(specification))
        return checked_energy(measurement_of(reply))

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

        with self._libraries.measuring(f"kernel {function}"):
            module = self._libraries.load(library)
            device = self._libraries.remote.cpu()
            tensors = [tvm.runtime.tensor(array, device) for array in arrays]
            module.get_function(function, query_imports=True)(*tensors)
            return [tensor.numpy() for tensor in tensors]

    def close(self) -> None:
        """End the connection."""
        self._libraries.close()


def checked_energy(measurement: Measurement) -> Measurement:
    """A measurement of a kernel whose energy, if it has one, is possible.

    Programs are compared by it, and an energy of nothing would be the least of all.

    Raises:
        MeasureError: it is not.
    """
    energy, most = measurement.energy, LIMITS.records.energy_j
    if energy.gross_j is None:
        return measurement
    watts, spread = energy.mean_w, energy.std_j
    possible = 0.0 < energy.gross_j <= most and watts is not None and 0.0 < watts <= most
    if not possible or not (spread is None or 0.0 <= spread <= most):
        raise MeasureError("the device returned no usable energy of a kernel; measure again")
    return measurement


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
