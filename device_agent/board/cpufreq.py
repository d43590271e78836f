"""Governors and frequency limits of the processor, through the kernel's cpufreq interface.

Layout and meaning: Documentation/admin-guide/pm/cpufreq.rst in the Linux sources. There is one folder
`policyN` for all cores that share a clock. Frequencies are in kHz. The kernel refuses a minimum above the
maximum, so the order in which the limits are written matters. Not every driver lists its frequencies.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from device_agent.errors import AgentError

FOLDER = "sys/devices/system/cpu/cpufreq"
# The attributes that the agent changes, and therefore saves and restores.
ATTRIBUTES = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
# Limits of the processor's frequency, in percent of the highest.
SHARES = (100, 75, 50)
# This governor sets the frequency that another file names, so it is not a mode to measure in.
_MANUAL = "userspace"


class Policy(NamedTuple):
    """A group of cores with a common clock; frequencies in kHz."""

    name: str
    governor: str
    lowest: int
    highest: int
    low: int
    high: int
    governors: Tuple[str, ...]
    steps: Tuple[int, ...]

    def at(self, share: int) -> int:
        """The driver's frequency that is nearest to a share (percent) of the highest."""
        wanted = self.highest * share // 100
        nearest = min(self.steps, key=lambda step: abs(step - wanted)) if self.steps else wanted
        return max(self.lowest, min(nearest, self.highest))


class CpuFrequency:
    """The cpufreq interface of one machine.

    Args:
        root: prefix of all system paths.
    """

    def __init__(self, root: str) -> None:
        self._folder = os.path.join(root, FOLDER)

    def policies(self) -> List[Policy]:
        """All policies that can be read; an empty list if the kernel has no cpufreq."""
        try:
            names = [name for name in os.listdir(self._folder) if re.match(r"policy\d+$", name)]
        except OSError:
            return []
        found = (self._policy(name) for name in sorted(names, key=lambda name: int(name[6:])))
        return [policy for policy in found if policy is not None]

    def _policy(self, name: str) -> Optional[Policy]:
        try:
            steps = self._read(name, "scaling_available_frequencies").split()
        except OSError:
            steps = []
        try:
            return Policy(
                name=name,
                governor=self._read(name, "scaling_governor"),
                lowest=int(self._read(name, "cpuinfo_min_freq")),
                highest=int(self._read(name, "cpuinfo_max_freq")),
                low=int(self._read(name, "scaling_min_freq")),
                high=int(self._read(name, "scaling_max_freq")),
                governors=tuple(self._read(name, "scaling_available_governors").split()),
                steps=tuple(int(step) for step in steps),
            )
        except (OSError, ValueError):
            return None  # its cores were switched off meanwhile

    def governors(self) -> List[str]:
        """The governors that every policy offers."""
        policies = self.policies()
        if not policies:
            return []
        common = set.intersection(*(set(policy.governors) for policy in policies)) - {_MANUAL}
        return [name for name in policies[0].governors if name in common]

    def refusal(self) -> Optional[str]:
        """The reason why the agent may not change anything, with what to type; None if it may."""
        for policy in self.policies():
            for attribute in ATTRIBUTES:
                path = self._path(policy.name, attribute)
                if not os.access(path, os.W_OK):
                    return _permission(path)
        return None

    def snapshot(self) -> Dict[str, Dict[str, str]]:
        """The present values of all attributes that can be changed, by policy and attribute."""
        return {
            policy.name: {attribute: self._read(policy.name, attribute) for attribute in ATTRIBUTES}
            for policy in self.policies()
        }

    def set_governor(self, governor: str) -> None:
        """Sets the governor of all cores.

        Raises:
            AgentError: the kernel refuses; the message says what to type.
        """
        for policy in self.policies():
            self._write(policy.name, "scaling_governor", governor)

    def limit(self, share: int) -> None:
        """Limits all cores to a share of their highest frequency.

        Args:
            share: percent.

        Raises:
            AgentError: the kernel refuses; the message says what to type.
        """
        for policy in self.policies():
            high = policy.at(share)
            self._limits(policy, min(policy.low, high), high)

    def put(self, snapshot: Dict[str, Dict[str, str]], attributes: Tuple[str, ...] = ATTRIBUTES) -> None:
        """Restores the values of a snapshot.

        Args:
            snapshot: result of `snapshot`.
            attributes: attributes to restore.

        Raises:
            AgentError: the kernel refuses a value or keeps another one. All other values were restored.
        """
        present = {policy.name: policy for policy in self.policies()}
        failures = []
        for name, values in snapshot.items():
            try:
                if "scaling_governor" in attributes:
                    self._write(name, "scaling_governor", values["scaling_governor"])
                if "scaling_max_freq" in attributes and name in present:
                    low, high = int(values["scaling_min_freq"]), int(values["scaling_max_freq"])
                    self._limits(present[name], low, high)
            except AgentError as error:
                failures.append(str(error))
                continue
            for attribute in attributes:
                found = self._read(name, attribute)
                if found != values[attribute]:
                    failures.append("%s is %s instead of %s" % (attribute, found, values[attribute]))
        if failures:
            raise AgentError("modes", failures[0])

    def _limits(self, policy: Policy, low: int, high: int) -> None:
        writes = [("scaling_max_freq", high), ("scaling_min_freq", low)]
        for attribute, value in reversed(writes) if high < policy.low else writes:
            self._write(policy.name, attribute, str(value))

    def _path(self, policy: str, attribute: str) -> str:
        return os.path.join(self._folder, policy, attribute)

    def _read(self, policy: str, attribute: str) -> str:
        with open(self._path(policy, attribute), encoding="ascii") as file:
            return file.read().strip()

    def _write(self, policy: str, attribute: str, value: str) -> None:
        path = self._path(policy, attribute)
        try:
            # sysfs wants a single write. Without O_CREAT, a missing file is not created.
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, value.encode())
            finally:
                os.close(descriptor)
        except PermissionError as error:
            raise AgentError("modes", _permission(path)) from error
        except OSError as error:
            raise AgentError("modes", "%s does not take %s: %s" % (path, value, error.strerror)) from error


def _permission(path: str) -> str:
    folder = os.path.dirname(os.path.dirname(path))
    return (
        "no permission to change %s; on the device type: sudo chown $USER %s/policy*/scaling_{governor,"
        "min_freq,max_freq} (until it restarts), or on the host: sdk devices install-agent NAME "
        "--power-modes" % (path, folder)
    )
