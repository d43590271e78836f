"""One task with programs as a training example: token numbers, and the quality of each program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from host.errors import TlmError

# Quality of a program: how many times slower than the best known one it may be for 0, 1 and 2.
_SLOWER = (1.02, 1.1, 1.5)


def quality_of(slower: float) -> int:
    """The quality of a program that takes `slower` times as long as the best known one: 0 is the best."""
    return next((quality for quality, most in enumerate(_SLOWER) if slower <= most), len(_SLOWER))


@dataclass(frozen=True)
class Example:
    """One task with programs.

    Attributes:
        index: its number.
        prompt: token numbers up to and without the quality.
        programs: token numbers of the decisions, and how many times slower than the best each is.
        left_out: why the example is not used; "" if it is used.
        estimates: estimated seconds of each program; empty where one of them is unknown.
    """

    index: int
    prompt: tuple[int, ...] = ()
    programs: tuple[tuple[tuple[int, ...], float], ...] = ()
    left_out: str = ""
    estimates: tuple[float, ...] = ()

    @property
    def qualities(self) -> tuple[int, ...]:
        """The quality of each program."""
        return tuple(quality_of(slower) for _, slower in self.programs)


def content_of(example: Example) -> dict[str, Any]:
    """An example as plain data, one line of a file."""
    if example.left_out:
        return {"index": example.index, "left_out": example.left_out}
    programs = [[list(tokens), slower] for tokens, slower in example.programs]
    content = {"index": example.index, "prompt": list(example.prompt), "programs": programs}
    return {**content, "estimates": list(example.estimates)} if example.estimates else content


def example_from(path: Path, number: int, content: Any) -> Example:
    """Read an example from a line of a file.

    Raises:
        TlmError: the line is not an example.
    """
    try:
        if "left_out" in content:
            return Example(int(content["index"]), left_out=str(content["left_out"]))
        programs = tuple((tuple(map(int, tokens)), float(slower)) for tokens, slower in content["programs"])
        estimates = tuple(map(float, content.get("estimates", ())))
        if estimates and (len(estimates) != len(programs) or not min(estimates) > 0.0):
            raise ValueError("estimates that are not positive, or not one a program")
        return Example(
            int(content["index"]), tuple(map(int, content["prompt"])), programs, estimates=estimates
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TlmError(f"{path}, line {number} is no example ({error}); remove the file") from error
