"""A kind of board, as declared, and an agent's description of the machine that it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from targets.hardware import GpuMode, GpuModel, HardwareModel
from targets.nvidia import MODES

FACTS_SCHEMA = "edgetlm.board/1"


@dataclass(frozen=True)
class MachineDescription:
    """What a device agent reports of its machine (wire message `describe`).

    Attributes:
        machine: `uname -m`.
        cpu_name: model name of the processor.
        cores: cores usable by the agent.
        features: CPU feature flags as /proc/cpuinfo spells them.
        cache_bytes: per-core capacity by level name ("L1", "L2", "L3").
        frequency_hz: current or nominal clock; 0 where unknown.
        memory_bytes: physical memory.
        device_tree_model: board name from the device tree, "" on PCs.
        software: versions by name ("python", "tvm_runtime", "onnxruntime", ...).
        board: name of a board file that the user chose for it, which then decides; "" for what fits best.
        system: versions of kernel and firmware by name, as far as the machine shows them.
    """

    machine: str
    cpu_name: str
    cores: int
    features: tuple[str, ...]
    cache_bytes: dict[str, int]
    frequency_hz: float
    memory_bytes: int
    device_tree_model: str = ""
    software: dict[str, str] = field(default_factory=dict)
    board: str = ""
    system: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Board:
    """A kind of board.

    Attributes:
        name: identifier used on the command line.
        title: name for people.
        architecture: "x86_64", "aarch64" or "riscv64".
        tvm_target: target as a dictionary that TVM accepts, `num-cores` included.
        hardware: what the schedules are made for.
        sensors: power sensors to look for, best first.
        payload: "python" or "native".
        power_modes: names of power modes the board offers.
        gpu: the board's CUDA GPU, if programs can be made for it.
        family: name that stands for any of several boards ("jetson"), "" for none.
        rails: names of the power rails whose sum is the whole, exactly as the sensor gives them; () where
            the sensor's own rule says which.
        boundary: what these rails supply ("module", "pmic-rails", "package"), "" where unknown.
    """

    name: str
    title: str
    architecture: str
    tvm_target: dict[str, object]
    hardware: HardwareModel
    sensors: tuple[str, ...] = ()
    payload: str = "python"
    power_modes: tuple[str, ...] = ()
    gpu: GpuModel | None = None
    family: str = ""
    rails: tuple[str, ...] = ()
    boundary: str = ""

    def facts(self) -> dict[str, object]:
        """The facts of a board that its agent needs, as plain data: the agent reads no board files."""
        return {
            "schema": FACTS_SCHEMA,
            "name": self.name,
            "title": self.title,
            "family": self.family,
            "sensors": list(self.sensors),
            "rails": list(self.rails),
            "boundary": self.boundary,
            "power_modes": list(self.power_modes),
        }

    def gpu_modes(self) -> dict[str, GpuMode]:
        """Power modes of which it is known what they leave of the GPU, by name."""
        return {} if self.gpu is None else {mode.name: mode for mode in MODES.get(self.gpu.name, ())}

    def on_gpu(self) -> Board:
        """This board with its GPU in the place of the CPU: kernels run there, the CPU starts them.

        Raises:
            ValueError: the board has no GPU.
        """
        if self.gpu is None:
            raise ValueError(f"board {self.name} has no CUDA GPU")
        target: dict[str, object] = {
            "kind": "cuda",
            "arch": self.gpu.arch,
            "max_threads_per_block": self.gpu.threads_per_block,
            "max_shared_memory_per_block": self.gpu.shared_per_block,
            "thread_warp_size": self.gpu.warp,
            "host": self.tvm_target,
        }
        return replace(
            self,
            name=f"{self.name}-gpu",
            tvm_target=target,
            # Dot products are the CPU's instructions.
            hardware=replace(
                self.hardware,
                gpu=self.gpu,
                dot_product="",
                bfloat16=None,
                matrix_tiles=None,
                byte_tables="",
                half_arithmetic=False,
                byte_matrices=False,
            ),
        )
