"""The agent as a unit of systemd: of a user, or a hardened one of the system.

Options and their versions: systemd.exec(5), systemd.resource-control(5), systemd.service(5). A systemd that
    does
not know an option logs that and continues.
"""

from __future__ import annotations

import os
import re
import sys
from typing import List, NamedTuple

from device_agent.serve.control import CODE

_CPUFREQ = "/sys/devices/system/cpu/cpufreq"
_RAPL = "/sys/class/powercap/intel-rapl:*/energy_uj"


class SystemdUnit(NamedTuple):
    """The parameters of a unit.

    Attributes:
        home: the agent's folder.
        python: interpreter.
        user: whose agent it is; for the system's unit.
        system: a unit of the system, not of the user's own systemd.
        power_modes: let the agent change power modes.
        nvpmodel: whether NVIDIA's program, which needs root, sets the modes of the board.
    """

    home: str
    python: str
    user: str
    system: bool = False
    power_modes: bool = False
    nvpmodel: bool = False

    def text(self) -> str:
        """The unit file's text: the command, and the hardening that grants it what it needs."""
        command = [self.python, "-m", "device_agent", "serve", "--home", self.home, "--python", self.python]
        lines = [
            "[Unit]",
            "Description=EdgeTLM device agent: runs and measures models",
            "",
            "[Service]",
            "WorkingDirectory=%s" % _path(self._code()),
            "ExecStart=%s" % " ".join(_word(word) for word in command),
            "# Also after it made room for a new version.",
            "Restart=on-failure",
            "RestartSec=2",
            "# The agent ends its sessions and restores power modes itself; what is left then is killed.",
            "KillMode=mixed",
            "TimeoutStopSec=90",
            "# A session that was killed for its memory is the agent's to replace.",
            "OOMPolicy=continue",
            "# Models crash: their memory is not written to the card.",
            "LimitCORE=0",
            "UMask=0077",
            "TasksMax=512",
            "# The board stays usable when everything else has failed.",
            "MemoryMax=90%",
        ]
        if not self._sudo:
            lines.append("NoNewPrivileges=yes")
        if self.system:
            lines += self._hardening()
        target = "multi-user.target" if self.system else "default.target"
        return "\n".join([*lines, "", "[Install]", "WantedBy=%s" % target, ""])

    @property
    def _sudo(self) -> bool:
        return self.power_modes and self.nvpmodel

    def _code(self) -> str:
        # The link, so that an update needs no new unit.
        current = os.path.join(self.home, "agent", "current")
        return current if os.path.isdir(current) else os.path.dirname(CODE)

    def _hardening(self) -> List[str]:
        lines = [
            "",
            "# Kernels are code from the host. They run as the user who asks for tickets over SSH, see none",
            "# of that user's files but the agent's folder, and cannot write anywhere else.",
            "User=%s" % self.user,
            "ProtectSystem=strict",
            "ProtectHome=tmpfs",
            "BindPaths=%s" % _bind(self.home),
            *self._interpreter(),
            "PrivateTmp=yes",
            "",
            "# No network but the loopback interface, where hosts arrive through SSH.",
            "RestrictAddressFamilies=AF_INET AF_UNIX",
            "IPAddressDeny=any",
            "IPAddressAllow=localhost",
            "",
            "# Devices: GPUs, the Raspberry Pi's firmware (power, throttling), external meters. Sensors are",
            "# files in /sys and need none.",
            "DevicePolicy=closed",
            *["DeviceAllow=%s rw" % device for device in _DEVICES],
            "",
            *self._kernel(),
            "LockPersonality=yes",
            "ProtectClock=yes",
            "ProtectControlGroups=yes",
            "ProtectHostname=yes",
            "ProtectKernelLogs=yes",
            "ProtectKernelModules=yes",
            "# Other users' processes are not seen; /proc/cpuinfo and its like are.",
            "ProtectProc=invisible",
            "RestrictNamespaces=yes",
            "RestrictRealtime=yes",
            "RestrictSUIDSGID=yes",
            "SystemCallArchitectures=native",
        ]
        return lines + self._grants()

    def _interpreter(self) -> List[str]:
        """Makes an interpreter visible that is below a home directory."""
        prefixes = {os.path.dirname(os.path.dirname(self.python)), sys.prefix, sys.base_prefix}
        hidden = sorted(prefix for prefix in prefixes if re.match(r"/(home|root|run/user)/", prefix + "/"))
        return ["BindReadOnlyPaths=%s" % _bind(prefix) for prefix in hidden]

    def _kernel(self) -> List[str]:
        if self._sudo:
            return [
                "# nvpmodel runs through sudo and writes to /sys: privileges, system calls and the kernel's",
                "# settings stay as sudo needs them.",
            ]
        return [
            "CapabilityBoundingSet=",
            "ProtectKernelTunables=yes",
            "# What services commonly need, with an error for all else. Memory that is written and executed",
            "# stays allowed: engines compile while they run.",
            "SystemCallFilter=@system-service",
            "SystemCallErrorNumber=EPERM",
        ]

    def _grants(self) -> List[str]:
        """The commands that root runs before the agent starts, so that the agent needs no root."""
        lines = [
            "",
            "# The processor's energy counters are root's since CVE-2020-8694; this user may read them.",
            _grant(self.user, _RAPL, "0400"),
        ]
        if self.power_modes:
            files = "%s/policy*/scaling_{governor,min_freq,max_freq}" % _CPUFREQ
            lines += ["# Governor and limits of the processor, and nothing else of the kernel's settings."]
            lines += [
                _grant(self.user, files.replace("{governor,min_freq,max_freq}", name), "0644")
                for name in ("governor", "min_freq", "max_freq")
            ]
            if not self._sudo:
                lines.append("ReadWritePaths=-%s" % _CPUFREQ)
        return lines


# Groups of /proc/devices by name, and single nodes; what a board lacks is passed over.
_DEVICES = (
    "char-nvidia*",
    "char-nvhost*",
    "char-nvgpu*",
    "/dev/nvmap",
    "char-drm",
    "/dev/vcio",
    "/dev/vchiq",
    "char-ttyUSB",
    "char-ttyACM",
)


def _grant(user: str, files: str, mode: str) -> str:
    # "+": as root whatever the unit says; "-": a board without these files is as good.
    change = "[ ! -e $$file ] || { chown %s $$file && chmod %s $$file; }" % (user, mode)
    script = "for file in %s; do %s; done" % (files, change)
    return "ExecStartPre=+-/bin/sh -c %s" % _word(script, keep_dollars=True)


def _word(text: str, keep_dollars: bool = False) -> str:
    """A word of a command line, with systemd's quoting, specifiers and variables."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if not keep_dollars:
        text = text.replace("$", "$$")
    return '"%s"' % text if re.search(r"[^A-Za-z0-9_./:=@%-]", text) else text


def _path(text: str) -> str:
    return text.replace("%", "%%")


def _bind(path: str) -> str:
    return _word(path.replace(":", "\\:"), keep_dollars=True)
