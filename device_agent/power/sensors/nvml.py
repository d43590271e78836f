"""A discrete NVIDIA GPU, through libnvidia-ml.

NVML API reference: nvmlDeviceGetTotalEnergyConsumption counts millijoules (Volta and later, renewed about
every 100 ms), nvmlDeviceGetPowerUsage gives milliwatts averaged over a window of the driver's own. On Jetson
NVML initialises and then answers NotSupported to everything: it is probed by reading a value, and never on
Tegra.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional

from device_agent.board import sysfs

_LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96
_ERRORS = {3: "not supported", 4: "no permission", 9: "the driver is not loaded", 15: "the GPU is lost"}


class Nvml:
    """Energy, or power where there is no counter, of one GPU: the first that this process may see.

    Args:
        root: prefix of all system paths, by which a Jetson is recognised.
        board: facts of the board; the GPU needs none.
        load: opens the library.
    """

    name = "nvml"
    order = 60

    def __init__(
        self,
        root: str = "/",
        board: Optional[Dict[str, Any]] = None,
        load: Optional[Callable[[str], Any]] = None,
    ) -> None:
        self._root = root
        self._load = load
        self._library: Any = None
        self._gpu: Any = None
        self._name = ""
        self.quantity = "energy"
        # Several readings for each new value of the counter, so that its changes are known to 20 ms.
        self.period_s = sysfs.FASTEST_S

    def probe(self) -> Optional[str]:
        """None where a value can be read, else why not."""
        if sysfs.is_tegra(self._root):
            return "no NVML: on a Jetson it gives no values"
        # Not at the top: only those who look for a GPU pay for ctypes.
        import ctypes

        if self._library is None:
            try:
                self._library = (self._load or ctypes.CDLL)(_LIBRARY)
            except OSError:
                return "no NVML: %s is not installed" % _LIBRARY
        try:
            self._check(self._library.nvmlInit_v2())
            gpu = ctypes.c_void_p()
            self._check(self._library.nvmlDeviceGetHandleByIndex_v2(_visible(), ctypes.byref(gpu)))
            self._gpu = gpu
            name = ctypes.create_string_buffer(_NAME_BYTES)
            self._check(self._library.nvmlDeviceGetName(gpu, name, _NAME_BYTES))
            self._name = name.value.decode("utf-8", "replace")
        except OSError as error:
            return "NVML cannot be used: %s" % error
        failures = []
        for quantity in ("energy", "power"):
            self.quantity = quantity
            try:
                self.read()
                return None
            except OSError as error:
                failures.append("%s: %s" % (quantity, error))
        return "NVML cannot be used: %s gives no value (%s)" % (self._name, ", ".join(failures))

    def read(self) -> Any:
        """The counter in millijoules as a list of one, or watts.

        Raises:
            OSError: the library refuses.
        """
        import ctypes

        if self.quantity == "energy":
            energy = ctypes.c_ulonglong()
            self._check(self._library.nvmlDeviceGetTotalEnergyConsumption(self._gpu, ctypes.byref(energy)))
            return [int(energy.value)]
        power = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetPowerUsage(self._gpu, ctypes.byref(power)))
        return power.value * 1e-3

    def joules(self, before: List[int], after: List[int]) -> Optional[float]:
        """Energy between two readings; None where the counter fell, as it does when the driver is loaded."""
        return (after[0] - before[0]) * 1e-3 if after[0] >= before[0] else None

    def describe(self) -> Dict[str, Any]:
        """The GPU: the host's processor and memory are not seen."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": [self._name],
            "boundary": "gpu",
            "period_s": self.period_s,
        }

    def close(self) -> None:
        """Ends the use of NVML."""
        if self._library is not None and self._gpu is not None:
            self._library.nvmlShutdown()
            self._gpu = None

    def _check(self, code: int) -> None:
        if code != 0:
            raise OSError("NVML error %d (%s)" % (code, _ERRORS.get(code, "see nvmlReturn_t")))


def _visible() -> int:
    """The GPU that programs of this process run on."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


SENSORS = (Nvml,)
