"""Figures of a board for Prometheus: `device-agent metrics`, a process that only this command starts.

It reads what the kernel shows, and asks the agent who has the device; it starts no agent and no measurement.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from device_agent.board.machine import Machine
from device_agent.board.process_usage import usage
from device_agent.contract.metrics import Metric
from device_agent.errors import AgentError
from device_agent.serve import control
from device_agent.store.agent_folder import AgentFolder


class BoardMetrics:
    """Collects the figures.

    Args:
        home: the agent's folder.
        system_root: prefix of all system paths.
    """

    def __init__(self, home: AgentFolder, system_root: str = "/") -> None:
        self._home = home
        self._machine = Machine(system_root)
        description = self._machine.describe()
        self._about = {
            "cpu": str(description["cpu_name"]),
            "model": str(description["device_tree_model"]),
            "kernel": str(description["system"].get("kernel", "")),
        }

    def collect(self) -> List[Metric]:
        """The figures of this moment."""
        return [*self._of_machine(self._machine.state()), *self._of_agent()]

    def _of_machine(self, state: Mapping[str, Any]) -> List[Metric]:
        clocks = {"cpu%d" % number: clock for number, clock in enumerate(state.get("clocks_hz", []))}
        load = {"": state["load_1min"]} if "load_1min" in state else {}
        return [
            Metric("edgetlm_board_info", "gauge", "What the board is.", [(self._about, 1.0)]),
            _gauge("temperature_celsius", "Temperature by zone.", "zone", state.get("temperatures_c", {})),
            _gauge("clock_hertz", "Clock by policy, or by core.", "clock", clocks),
            _gauge("fan_rpm", "Revolutions a minute by fan.", "fan", state.get("fans_rpm", {})),
            _gauge("load1", "Load average of the last minute.", "", load),
            _gauge(
                "throttle", "Flags and counts of throttling, as they are.", "flag", state.get("throttle", {})
            ),
        ]

    def _of_agent(self) -> List[Metric]:
        record = self._home.running()
        figures = [
            Metric("edgetlm_agent_up", "gauge", "Whether the agent runs.", [({}, float(bool(record)))])
        ]
        if record is None:
            return figures
        used = usage(int(record["pid"]))
        memory, cpu = float(used.resident_bytes), used.cpu_s
        figures += [
            Metric("edgetlm_agent_resident_memory_bytes", "gauge", "Memory of the agent.", [({}, memory)]),
            Metric("edgetlm_agent_cpu_seconds_total", "counter", "Processor time of it.", [({}, cpu)]),
        ]
        try:
            answer = control.ask(record, "device.holder")
        except AgentError:
            return figures  # it is about to end, or too busy to say
        held, waiting = float(answer.get("holder") is not None), float(answer.get("waiting") or 0)
        return [
            *figures,
            Metric("edgetlm_agent_device_held", "gauge", "Whether a host has the device.", [({}, held)]),
            Metric(
                "edgetlm_agent_hosts_waiting", "gauge", "Hosts that wait for the device.", [({}, waiting)]
            ),
        ]


def _gauge(name: str, text: str, label: str, values: Mapping[str, Any]) -> Metric:
    rows: List[Tuple[Mapping[str, str], float]] = []
    for key, value in values.items():
        labels: Dict[str, str] = {label: key} if label else {}
        rows.append((labels, float(value)))
    return Metric("edgetlm_board_" + name, "gauge", text, rows)
