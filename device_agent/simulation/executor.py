"""The executor of a simulated board: `python -m device_agent.simulation.executor SCENARIO`.

A model's outputs are computed, on this machine, once for each set of inputs. Every other run only lets
simulated time pass.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from device_agent import power
from device_agent.board.machine import Machine
from device_agent.contract.measuring import KernelPlan
from device_agent.errors import AgentError
from device_agent.execute import engines, executor, kernels, variants
from device_agent.execute.kernel_times import KernelTotal
from device_agent.execute.virtual_machine import VirtualMachine
from device_agent.measure import measurement, sampling
from device_agent.measure import meter as power_meter
from device_agent.measure.energy import Readings
from device_agent.measure.measurement import Meter
from device_agent.simulation.board import SimulatedBoard
from device_agent.simulation.scenario import load, program_of
from device_agent.wire.frames import Header, TensorData, error_reply

_SAMPLES = 5


class SimulatedMachine(Machine):
    """Shows the board's state at each look."""

    def __init__(self, root: str, board: SimulatedBoard) -> None:
        super().__init__(root)
        self._board = board
        flags = self.throttle.flags

        def fresh() -> Dict[str, int]:
            board.publish()
            return flags()

        self.throttle.flags = fresh  # type: ignore[method-assign]

    def state(self) -> Dict[str, Any]:
        """See Machine."""
        self._board.publish()
        return super().state()

    def hottest_c(self) -> Optional[float]:
        """See Machine."""
        self._board.publish()
        return super().hottest_c()


class SimulatedSensor:
    """The board's own sensor, whose files are written just before each reading."""

    def __init__(self, sensor: Any, board: SimulatedBoard) -> None:
        self._sensor = sensor
        self._board = board

    def read(self) -> Any:
        """A reading of the sensor, of the files as the simulation has them now."""
        self._board.publish()
        return self._sensor.read()

    def describe(self) -> Dict[str, Any]:
        """The sensor's description; nothing that it reads was measured."""
        return dict(self._sensor.describe(), kind="simulated")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sensor, name)


class SimulatedEngine:
    """An engine whose runs take simulated time.

    Args:
        engine: computes outputs.
        name: of the engine.
        board: passes the time.
    """

    def __init__(self, engine: Any, name: str, board: SimulatedBoard) -> None:
        self._engine = engine
        self._recorded = board.scenario.model_s(name)
        self._board = board
        self._computed = False
        self._seconds = 0.0

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        self._computed = False
        self._engine.bind(inputs)

    def invoke(self) -> None:
        """See Engine."""
        if not self._computed:
            self._compute()
        self._board.work(self._seconds)

    def profile(self, runs: int) -> List[Dict[str, Any]]:
        """See TvmEngine.profile: kernels without a recorded time share what is left of the simulated run."""
        if not self._computed:
            self._compute()
        found: List[Dict[str, Any]] = self._engine.profile(runs)
        recorded = [self._board.scenario.kernel_s(one["name"]) for one in found]
        known = sum(each * one["calls"] for one, each in zip(found, recorded) if each is not None)
        real = sum(one["seconds"] for one, each in zip(found, recorded) if each is None)
        share = max(0.0, self._seconds - known) / real if real else 0.0
        return [
            dict(one, seconds=one["seconds"] * share if each is None else each * one["calls"])
            for one, each in zip(found, recorded)
        ]

    def _compute(self) -> None:
        seconds = self._recorded
        for _ in range(1 if seconds is not None else _SAMPLES):
            begin = time.perf_counter()
            self._engine.invoke()
            spent = time.perf_counter() - begin
            self._seconds = spent if self._seconds == 0.0 else min(self._seconds, spent)
        self._seconds = seconds if seconds is not None else self._seconds * self._board.scenario.factor
        self._computed = True

    def __getattr__(self, name: str) -> Any:
        # Where kernels part is looked at by the engine itself; the times it finds there are this machine's.
        return getattr(self._engine, name)


def _meter_of(board: SimulatedBoard) -> Any:
    class SimulatedKernelMeter(kernels.KernelMeter):
        """Times kernels by the simulated clock."""

        def measure(self, module: Any, name: str, specification: str, *arguments: Any) -> str:
            """See KernelMeter."""
            self._program = program_of(json.loads(specification).get("program"))
            return super().measure(module, name, specification, *arguments)

        def _loop(
            self, module: Any, name: str, together: int, tensors: List[Any], on_gpu: bool
        ) -> Callable[[], Any]:
            def many() -> None:
                for _ in range(together):
                    board.work(self._seconds, self._program)

            return many

        def _times(
            self, module: Any, name: str, plan: KernelPlan, tensors: List[Any], on_gpu: bool
        ) -> List[float]:
            function = module.get_function(name, query_imports=True)
            function(*tensors)
            seconds = board.scenario.kernel_s(name)
            if seconds is None:
                spent = []
                for _ in range(_SAMPLES):
                    begin = time.perf_counter()
                    function(*tensors)
                    spent.append(time.perf_counter() - begin)
                seconds = min(spent) * board.scenario.factor
            self._seconds = seconds
            times = []
            for _ in range(max(1, plan.repeat)):
                begin = board.monotonic()
                board.work(seconds, self._program)
                times.append(board.monotonic() - begin)
            return times

    return SimulatedKernelMeter


class SimulatedVariant(variants.Variant):
    """A variant whose kernels take simulated time: as recorded, or as the best of some real runs.

    Args:
        model, library, place: see Variant.
        board: passes the time.
    """

    def __init__(self, model: VirtualMachine, library: Any, place: int, board: SimulatedBoard) -> None:
        super().__init__(model, library, place)
        self._board = board
        self._totals: Dict[str, KernelTotal] = {}

    def run(self) -> Dict[str, KernelTotal]:
        """See Variant."""
        self._totals = self._totals or self._computed()
        found = {}
        for name, total in self._totals.items():
            begin = self._board.monotonic()
            self._board.work(total.seconds)
            found[name] = KernelTotal(total.calls, self._board.monotonic() - begin)
        return found

    def _computed(self) -> Dict[str, KernelTotal]:
        real = [super(SimulatedVariant, self).run() for _ in range(_SAMPLES)]
        totals = {}
        for name, total in real[0].items():
            recorded = self._board.scenario.kernel_s(name)
            if recorded is not None:
                seconds = recorded * total.calls
            else:
                seconds = min(run[name].seconds for run in real) * self._board.scenario.factor
            totals[name] = KernelTotal(total.calls, seconds)
        return totals


def _variant_meter_of(board: SimulatedBoard) -> Any:
    class SimulatedVariantMeter(variants.VariantMeter):
        """Times the kernels of variants by the simulated clock."""

        def _variant(self, model: VirtualMachine, library: Any, place: int) -> variants.Variant:
            return SimulatedVariant(model, library, place, board)

    return SimulatedVariantMeter


def _sampler_of(board: SimulatedBoard) -> Any:
    class SimulatedSampler(sampling.Sampler):
        """Reads the sensor as simulated time passes, without a thread."""

        def start(self) -> None:
            """See Sampler."""
            self._take()
            self._end: Callable[[], None] = board.watch(self._sensor.period_s, self._take)

        def stop(self, end_s: float) -> Readings:
            """See Sampler."""
            while not self._passed(end_s):
                board.sleep(self._sensor.period_s)
            self._end()
            return self._readings

    return SimulatedSampler


class SimulatedCommands(executor.Commands):
    """The commands without the seconds of loading and calling, which are this machine's."""

    def load(self, header: Header, blob: bytearray) -> executor.Reply:
        """See Commands."""
        fields, blobs = super().load(header, blob)
        del fields["load_s"]
        return fields, blobs

    def run(self, header: Header, blob: bytearray) -> executor.Reply:
        """See Commands."""
        fields, blobs = super().run(header, blob)
        for name in ("first_run_s", "run_s"):
            fields.pop(name, None)
        return fields, blobs


class SimulatedExecutor(executor.Executor):
    """An executor whose meter, sensors and clock are the simulation's."""

    def __init__(self, specification: Dict[str, Any], status: executor.Status, scenario: str) -> None:
        shared = str(specification["system_root"])
        # Every session has the board for itself, from cold.
        root = self._root = os.path.join(str(specification["workdir"]), os.pardir, "system")
        shutil.copytree(shared, root)
        threads = int(specification["threads"])
        self._board = SimulatedBoard(load(scenario), root, shared, threads)
        # What measures takes its time from the simulation; nothing else of the process does.
        for module in (measurement, sampling, power_meter, kernels, variants):
            setattr(module, "time", self._board)  # noqa: B010
        setattr(sampling, "Sampler", _sampler_of(self._board))  # noqa: B010
        setattr(kernels, "KernelMeter", _meter_of(self._board))  # noqa: B010
        setattr(variants, "VariantMeter", _variant_meter_of(self._board))  # noqa: B010
        machine = SimulatedMachine(root, self._board)
        sensor = SimulatedSensor(power.choose(root, {"sensors": ["hwmon"], "boundary": "board"}), self._board)
        meter = Meter(machine, power_meter.PowerMeter(machine, sensor, self._board.sleep), threads)
        self._simulated_meter = meter
        super().__init__(dict(specification, system_root=root, meter=None), status)
        name = str(specification["engine"])
        engine = SimulatedEngine(engines.create(name), name, self._board)
        self._commands = SimulatedCommands(name, engine, meter, threads, str(specification["trust_file"]))

    def _register_rpc(self, machine: Machine, threads: int, meter: Meter) -> None:
        super()._register_rpc(SimulatedMachine(self._root, self._board), threads, self._simulated_meter)


def main() -> int:
    """Runs the executor; see the module."""
    status = executor.Status(os.dup(1))
    os.dup2(2, 1)
    specification = json.loads(sys.stdin.readline())
    executor.die_with_parent(int(specification["parent_pid"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        simulated = SimulatedExecutor(specification, status, sys.argv[1])
    except AgentError as error:
        status.announce(error_reply(error))
        return 1
    simulated.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
