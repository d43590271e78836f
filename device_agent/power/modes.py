"""Power modes of this device: which there are, setting them for a while, and undoing it whatever happens.

Three kinds, each always in one mode: nvpmodel's, the governor, and the highest frequency as a share. Before
the first change everything that can be changed is written to a journal, which is on the disk before anything
happens and disappears when all of it is as it was. A journal that a killed agent left is acted upon by the
next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from device_agent.board.cpufreq import ATTRIBUTES, SHARES, CpuFrequency
from device_agent.board.nvpmodel import Mode, NvpModel
from device_agent.errors import AgentError
from device_agent.store.private_files import sync_folder, try_lock, write_private

NVPMODEL, GOVERNOR, FREQUENCY = "nvpmodel", "governor", "max_frequency"
JOURNAL = "modes.json"
_ATTRIBUTES = {GOVERNOR: ATTRIBUTES[:1], FREQUENCY: ATTRIBUTES[1:]}


class ListedMode(NamedTuple):
    """A power mode in the list of modes; `reason` says why it cannot be set, None where it can."""

    name: str
    kind: str
    current: bool
    reason: Optional[str]

    def fields(self) -> Dict[str, Any]:
        """The power mode as fields of a reply."""
        return {
            "name": self.name,
            "kind": self.kind,
            "current": self.current,
            "settable": self.reason is None,
            "reason": self.reason or "",
        }


class PowerModes:
    """The power modes of one machine, changed by one agent.

    Args:
        root: prefix of all system paths.
        folder: for the journal.
        lock: file whose lock is held while modes are changed: agents must not restore against each other.
        elevate: command that runs another one as root; by default none for root and `sudo -n` for others.
    """

    def __init__(self, root: str, folder: str, lock: str, elevate: Optional[Sequence[str]] = None) -> None:
        if elevate is None:
            elevate = () if os.geteuid() == 0 else ("sudo", "-n")
        self._root = root
        self._nvpmodel = NvpModel(root, elevate)
        self._frequency = CpuFrequency(root)
        self._journal = os.path.join(folder, JOURNAL)
        self._lock = lock
        self._held = contextlib.ExitStack()

    @property
    def changed(self) -> bool:
        """Whether there is something to restore."""
        return os.path.exists(self._journal)

    def list(self) -> Dict[str, Any]:
        """The reply to `modes.list`: `modes`, `changed`, `jetson_clocks` (null where there is none).

        Raises:
            AgentError: nvpmodel is there and does not answer.
        """
        modes = [mode.fields() for mode in self._found()]
        return {"modes": modes, "changed": self.changed, "jetson_clocks": self._jetson_clocks()}

    def set(self, name: str) -> None:
        """Puts the device into a mode; that in which it was found restores the kind exactly.

        Raises:
            AgentError: there is no such mode, it cannot be set, or another agent has modes changed. Whatever
                of it was done is undone by `restore`.
        """
        found = [mode for mode in self._found() if mode.name == name]
        journal = self._read()
        if journal is not None:
            kinds = [kind for kind, original in journal["names"].items() if original == name]
            if kinds:
                self._undo(journal, kinds[0])
                if journal["names"] == self._current():
                    self.restore()
                return
        if not found:
            raise AgentError("bad_request", "this device has no power mode %s" % name[:100])
        mode = found[0]
        if mode.current:
            return
        if mode.reason is not None:
            raise AgentError("modes", mode.reason)
        if journal is None:
            self._begin()
        if mode.kind == NVPMODEL:
            self._nvpmodel.set(next(one for one in self._nvpmodel.modes() if one.name == name))
        elif mode.kind == GOVERNOR:
            self._frequency.set_governor(name)
        else:
            self._frequency.limit(int(re.sub(r"\D", "", name)))

    def restore(self) -> None:
        """Makes everything as it was before the first change; without one nothing happens.

        Raises:
            AgentError: something could not be restored; the journal stays, and the next attempt goes on.
        """
        journal = self._read()
        if journal is not None:
            failures = []
            # nvpmodel sets governors and limits too, and switches cores on: it goes first.
            for kind in (NVPMODEL, GOVERNOR, FREQUENCY):
                try:
                    self._undo(journal, kind)
                except AgentError as error:
                    failures.append(str(error))
            if failures:
                raise AgentError("modes", "power modes are not restored: %s" % failures[0])
            os.unlink(self._journal)
            sync_folder(os.path.dirname(self._journal))
        self._held.close()

    # -- steps

    def _begin(self) -> None:
        attempt = contextlib.ExitStack()
        if not attempt.enter_context(try_lock(self._lock)):
            attempt.close()
            raise AgentError("busy", "another agent on this device has power modes changed")
        self._held.push(attempt.pop_all().__exit__)
        write_private(
            self._journal,
            {
                "boot_id": self._boot_id(),
                "nvpmodel": list(self._nvpmodel.current()) if self._nvpmodel.present else None,
                "policies": self._frequency.snapshot(),
                "names": self._current(),
            },
        )

    def _undo(self, journal: Dict[str, Any], kind: str) -> None:
        if kind == NVPMODEL:
            if journal["nvpmodel"] is None:
                return
            number, name = journal["nvpmodel"]
            if self._nvpmodel.current().number != number:
                self._nvpmodel.set(Mode(int(number), str(name)))
            return
        # Another boot has governors and limits of its own; nvpmodel's mode lasts.
        if journal["boot_id"] == self._boot_id():
            self._frequency.put(journal["policies"], _ATTRIBUTES[kind])

    def _current(self) -> Dict[str, str]:
        return {mode.kind: mode.name for mode in self._found() if mode.current}

    def _found(self) -> List[ListedMode]:
        modes: List[ListedMode] = []
        if self._nvpmodel.present:
            current, reason = self._nvpmodel.current(), self._nvpmodel.refusal()
            listed = self._nvpmodel.modes() or [current]
            modes += [ListedMode(one.name, NVPMODEL, one.number == current.number, reason) for one in listed]
        policies = self._frequency.policies()
        if not policies:
            return modes
        reason = self._frequency.refusal()
        present = "+".join(sorted({policy.governor for policy in policies}))
        governors = self._frequency.governors()
        names = governors if present in governors else [*governors, present]
        modes += [ListedMode(name, GOVERNOR, name == present, reason) for name in names]
        shares = {share: all(policy.high == policy.at(share) for policy in policies) for share in SHARES}
        # On a coarse table two shares are one frequency: the larger name stands for it.
        distinct = [
            share
            for index, share in enumerate(SHARES)
            if all(
                [p.at(share) for p in policies] != [p.at(other) for p in policies] for other in SHARES[:index]
            )
        ]
        modes += [ListedMode("cpu-%d%%" % share, FREQUENCY, shares[share], reason) for share in distinct]
        if not any(shares[share] for share in distinct):
            highest = max(policies, key=lambda policy: policy.high)
            name = "cpu-%.1f%%" % (100.0 * highest.high / highest.highest)
            modes.append(ListedMode(name, FREQUENCY, True, reason))
        return modes

    def _jetson_clocks(self) -> Optional[bool]:
        """jetson_clocks holds every clock at its limit; it has no state that others may read but that."""
        policies = self._frequency.policies()
        if not self._nvpmodel.present or not policies:
            return None
        return all(policy.low == policy.high for policy in policies)

    def _read(self) -> Optional[Dict[str, Any]]:
        try:
            with open(self._journal, encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return None

    def _boot_id(self) -> str:
        try:
            with open(os.path.join(self._root, "proc/sys/kernel/random/boot_id"), encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""
