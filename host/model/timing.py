"""What the times of a device are worth: the device says it, and results carry it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingPolicy:
    """What is timed on a device, what is counted instead, and what a result may claim.

    Whatever measures, decides, judges a limit or shows a figure asks the policy, and not what kind of device
    it is.

    Attributes:
        decides: whether times say what is faster. If not, they select nothing, are no latency and meet no
            limit, and peers are measured only on request.
        repeats: whether runs are repeated until their times are known well; else one run shows that a model
            runs.
        in_model: whether kernels of the CPU are timed inside of the model; else each is measured alone.
        counts_instructions: whether the instructions of a run are counted.
        source: whose times they are, such as "an emulator"; "" for a board.
        machine: whose cores and memory the device shows, where they are not its own; else "".
        state: what follows the name of a device whose times do not decide, such as "is emulated"; else "".
        banner: what has to be known before the figures are read; "" for a board. A result with a banner
            claims no ratio to other engines.
    """

    decides: bool = True
    repeats: bool = True
    in_model: bool = True
    counts_instructions: bool = False
    source: str = ""
    machine: str = ""
    state: str = ""
    banner: str = ""

    @property
    def compares(self) -> bool:
        """Whether a result may claim to be faster than another engine."""
        return not self.banner

    @property
    def clock(self) -> str:
        """Whose clock took the times, for a sentence."""
        return f"the clock of {self.source}" if self.source else "the device's own clock"

    def titled(self, words: str) -> str:
        """The title of figures of the device: of a simulated one it says so.

        Args:
            words: the title of a board's figures.
        """
        if self.compares:
            return words
        word = "Simulated" if words[0].isupper() else "simulated"
        return f"{word} {words[0].lower()}{words[1:]}"

    def why_unknown(self, device: str) -> str:
        """Why the times of a device cannot be known; "" where they can.

        Args:
            device: its name.
        """
        return "" if self.decides else f"cannot be known: {device} {self.state}"


BOARD = TimingPolicy()
# Times of an emulator say nothing of a board: one run shows that a model runs, and instructions are counted.
EMULATOR = TimingPolicy(
    decides=False,
    repeats=False,
    in_model=False,
    counts_instructions=True,
    source="an emulator",
    state="is emulated",
    banner="Simulated board: outputs are a board's, times and energy are those of an emulator.",
)
# Times of a simulated board are true to its model: they decide as a board's do, and say nothing of a machine.
SIMULATION = TimingPolicy(
    source="a simulation",
    machine="of the host, where the programs run",
    banner="Simulated board: all times, power and temperatures are those of a model, not of a machine.",
)


def kept_timing(emulated: bool, simulated: bool, device: str) -> TimingPolicy:
    """What the times of a kept result are worth.

    Args:
        emulated: whether its device was emulated, as results and manifests say it.
        simulated: whether its device was simulated; true of an emulated one as well.
        device: its name, by which a simulated one is known whose result was written before this was recorded.
    """
    if emulated:
        return EMULATOR
    return SIMULATION if simulated or device.startswith("replay:") else BOARD
