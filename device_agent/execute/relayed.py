"""The functions of a language model whose weights and state are elsewhere: another process runs them."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

from device_agent.errors import AgentError
from device_agent.execute.model_signature import TensorInfo

# Gets the name of a function, "" for main, and the numbers of each input; gives the bytes of its output.
Run = Callable[[str, List[List[int]]], bytes]


class RelayedFunction:
    """A function of the model.

    Args:
        name: of the function, "" for main.
        run: see `RelayedMachine`.
    """

    def __init__(self, name: str, run: Run) -> None:
        self._name, self._run = name, run

    def call(self, values: List[List[int]]) -> bytearray:
        """Runs it with the numbers of each input; the bytes of its output."""
        return bytearray(self._run(self._name, values))


class RelayedMachine(RelayedFunction):
    """What a decoder needs of a virtual machine; its calls run elsewhere.

    Args:
        run: has them run there.
    """

    def __init__(self, run: Run) -> None:
        super().__init__("", run)

    def entry(self, name: str, inputs: Sequence[TensorInfo], texts: Sequence[int] = (0,)) -> RelayedFunction:
        """A function of the library beside main."""
        return RelayedFunction(name, self._run)

    @property
    def state(self) -> List[Any]:
        """None that could be kept.

        Raises:
            AgentError: always.
        """
        raise self._unknown("the prompts of a model on another device are not kept in files")

    def copy_state(self, source: int, target: int) -> None:
        """None that could be copied from text to text.

        Raises:
            AgentError: always.
        """
        raise self._unknown("a model on another device continues one text at a time")

    @staticmethod
    def _unknown(what: str) -> AgentError:
        advice = "leave the option out, or use device_agent.runtime there"
        return AgentError("bad_request", "%s: %s" % (what, advice))
