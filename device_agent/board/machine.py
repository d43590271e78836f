"""The description and the present state of this machine, from /proc and /sys."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Dict, List, Optional

from device_agent.board import firmware, jetson, matrix_tiles, sysfs
from device_agent.board.commands import CommandError, Commands
from device_agent.board.throttle import CORES, Throttle

# Packages whose versions decide what a session can do or how fast the session is.
_PACKAGES = {
    "apache_tvm": "tvm",
    "apache_tvm_ffi": "tvm_ffi",
    "onnxruntime": "onnxruntime",
    "onnxruntime_gpu": "onnxruntime-gpu",
    "ai_edge_litert": "litert",
    "tflite_runtime": "tflite_runtime",
    "torch": "torch",
    "openvino": "openvino",
    "numpy": "numpy",
    "tensorrt": "tensorrt",
    "ncnn": "ncnn",
}
_MEMORY_SHARE = 0.8
_SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Machine:
    """The machine that the agent runs on.

    Args:
        root: prefix of all system paths.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._commands = Commands(root)
        self.throttle = Throttle(root)
        # The list of zones and fans does not change, so it is read only once.
        self._zones: Optional[Dict[str, sysfs.Attribute]] = None
        self._fans: Optional[Dict[str, sysfs.Attribute]] = None

    def describe(self) -> Dict[str, Any]:
        """The fields of the host's MachineDescription."""
        return {
            "machine": os.uname().machine,
            "cpu_name": self._cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "features": matrix_tiles.permitted(
                (self._cpuinfo("flags") or self._cpuinfo("Features") or self._cpuinfo("isa")).split()
            ),
            "cache_bytes": self._caches(),
            "frequency_hz": self._frequency_hz(),
            "memory_bytes": self._memory_bytes(),
            "device_tree_model": (self._read("proc/device-tree/model") or "").strip("\0 \n"),
            "software": dict(software(), **jetson.software(self._root)),
            "system": firmware.versions(self._root),
        }

    def state(self) -> Dict[str, Any]:
        """The present clocks, load, temperatures, fans and throttling, without those that cannot be read.

        `throttle` has the raw flags (see `Throttle`), `temperatures_c` degrees Celsius by zone, `fans_rpm`
        revolutions a minute, `limits_hz` the lowest and the highest allowed clock by policy, `devfreq` the
        clock and governor of GPUs and similar devices.
        """
        load = (self._read("proc/loadavg") or "").split()
        state: Dict[str, Any] = {"time_s": time.time(), "clocks_hz": self._clocks_hz()}
        if load:
            state["load_1min"] = float(load[0])
        governors = {name: text for name, text in self._policies("scaling_governor").items() if text}
        if governors:
            state["governors"] = governors
        parts: Dict[str, Any] = {
            "limits_hz": self._limits_hz(),
            "devfreq": self._devfreq(),
            "temperatures_c": self.temperatures_c(),
            "fans_rpm": self._fans_rpm(),
        }
        state.update({name: values for name, values in parts.items() if values})
        flags = self.throttle.flags()
        if flags:
            state["throttle"] = flags
        if CORES in flags:
            state["throttle_count"] = flags[CORES]
        return state

    def power_mode(self) -> Optional[str]:
        """The name of a Jetson's power mode, None elsewhere. Starts a program."""
        if self._commands.path("nvpmodel") is None:
            return None
        try:
            text = self._commands.output("nvpmodel", "-q")
        except CommandError:
            return None
        match = re.search(r"NV Power Mode:\s*(\S+)", text)
        return match.group(1) if match else None

    def hottest_c(self) -> Optional[float]:
        """The temperature of the hottest zone in degrees Celsius; None if no zone can be read."""
        return max(self.temperatures_c().values(), default=None)

    def memory_limit_bytes(self, wanted: Optional[int]) -> int:
        """A session's memory limit in bytes: `wanted`, or else a share that leaves the device usable."""
        return int(_MEMORY_SHARE * self._memory_bytes()) if wanted is None else int(wanted)

    def _read(self, path: str) -> Optional[str]:
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def _list(self, path: str, pattern: str) -> List[str]:
        try:
            names = os.listdir(os.path.join(self._root, path))
        except OSError:
            return []
        return [os.path.join(path, name) for name in sorted(names) if re.match(pattern, name)]

    def _cpuinfo(self, key: str) -> str:
        match = re.search(r"^%s\s*:\s*(.*)$" % re.escape(key), self._read("proc/cpuinfo") or "", re.MULTILINE)
        return match.group(1).strip() if match else ""

    def _cpu_name(self) -> str:
        """The processor's name, or "implementer:part" as Linux prints them on Arm, which has no name."""
        implementer, part = self._cpuinfo("CPU implementer"), self._cpuinfo("CPU part")
        arm = "%s:%s" % (implementer, part) if implementer and part else ""
        return self._cpuinfo("model name") or self._cpuinfo("uarch") or arm or os.uname().machine

    def _caches(self) -> Dict[str, int]:
        caches = {}
        for index in self._list("sys/devices/system/cpu/cpu0/cache", r"index\d+$"):
            level, kind, size = (self._read("%s/%s" % (index, name)) for name in ("level", "type", "size"))
            match = re.match(r"(\d+)([KMG]?)$", size or "")
            if level and match and kind in ("Data", "Unified"):
                caches["L" + level] = int(match.group(1)) * _SIZE_UNITS.get(match.group(2), 1)
        if caches:
            return caches
        # Some virtual machines hide the cache folders of sysfs, but not the table of the C library.
        table = {"L1": "SC_LEVEL1_DCACHE_SIZE", "L2": "SC_LEVEL2_CACHE_SIZE", "L3": "SC_LEVEL3_CACHE_SIZE"}
        known = {level: os.sysconf(name) for level, name in table.items() if name in os.sysconf_names}
        return {level: size for level, size in known.items() if size > 0}

    def _policies(self, name: str) -> Dict[str, Optional[str]]:
        folders = self._list("sys/devices/system/cpu/cpufreq", r"policy\d+$")
        return {os.path.basename(folder): self._read("%s/%s" % (folder, name)) for folder in folders}

    def _clocks_hz(self) -> List[float]:
        clocks = [float(text) * 1e3 for text in self._policies("scaling_cur_freq").values() if text]
        if clocks:
            return clocks
        found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", self._read("proc/cpuinfo") or "", re.MULTILINE)
        return [float(text) * 1e6 for text in found]

    def _limits_hz(self) -> Dict[str, List[float]]:
        least, greatest = (self._policies("scaling_%s_freq" % end) for end in ("min", "max"))
        pairs = {name: (least[name], greatest.get(name)) for name in least}
        return {name: [float(a) * 1e3, float(b) * 1e3] for name, (a, b) in pairs.items() if a and b}

    def _devfreq(self) -> Dict[str, Dict[str, Any]]:
        found = {}
        for folder in self._list("sys/class/devfreq", r"."):
            clock, governor = (self._read("%s/%s" % (folder, name)) for name in ("cur_freq", "governor"))
            if clock and clock.isdigit():
                found[os.path.basename(folder)] = {"clock_hz": float(clock), "governor": governor}
        return found

    def _frequency_hz(self) -> float:
        limits = [float(text) * 1e3 for text in self._policies("cpuinfo_max_freq").values() if text]
        return max(limits or self._clocks_hz() or [0.0])

    def _memory_bytes(self) -> int:
        match = re.search(r"^MemTotal:\s*(\d+) kB", self._read("proc/meminfo") or "", re.MULTILINE)
        return int(match.group(1)) * 1024 if match else 0

    def temperatures_c(self) -> Dict[str, float]:
        """The temperature of each zone in degrees Celsius."""
        if self._zones is None:
            self._zones = {}
            for zone in self._list("sys/class/thermal", r"thermal_zone\d+$"):
                name = "%s.%s" % (os.path.basename(zone), self._read("%s/type" % zone) or "zone")
                self._zones[name] = sysfs.Attribute(os.path.join(self._root, zone, "temp"))
        return {name: value / 1000.0 for name, value in _numbers(self._zones).items()}

    def _fans_rpm(self) -> Dict[str, float]:
        if self._fans is None:
            self._fans = {}
            for folder, chip in sysfs.hwmon_chips(self._root):
                for path in sysfs.children(folder, "fan"):
                    if path.endswith("_input"):
                        self._fans["%s.%s" % (chip, os.path.basename(path)[:-6])] = sysfs.Attribute(path)
        return {name: float(value) for name, value in _numbers(self._fans).items()}


def _numbers(attributes: Dict[str, sysfs.Attribute]) -> Dict[str, int]:
    numbers = {}
    for name, attribute in attributes.items():
        try:
            numbers[name] = attribute.number()
        except (OSError, ValueError):
            continue  # a zone that is powered down, which may return later
    return numbers


def software() -> Dict[str, str]:
    """The versions of the installed runtimes, from the names of their metadata folders.

    importlib.metadata would give the same, but would take five times the daemon's memory.
    """
    versions = {"python": "%d.%d.%d" % sys.version_info[:3]}
    libc = _libc()
    if libc:
        versions["glibc"] = libc
    for path in sys.path:
        try:
            names = os.listdir(path or ".")
        except OSError:
            continue
        for name in names:
            match = re.match(r"([A-Za-z0-9_.]+)-([^-]+)\.dist-info$", name)
            if match and match.group(1).lower() in _PACKAGES:
                versions.setdefault(_PACKAGES[match.group(1).lower()], match.group(2))
    if "tensorrt" not in versions and jetson.trtexec() is not None:
        versions["tensorrt"] = "trtexec"
    return versions


def _libc() -> str:
    """The version of the GNU C library, which limits what can run here; "" for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return ""
    return version if name == "glibc" else ""
