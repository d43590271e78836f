"""An engine of hosts on which the process that trains ends again and again."""

from __future__ import annotations

from typing import Any

from host.execution import HostLost, LocalEngine


class EndingHosts(LocalEngine):
    """The process that trains ends after each number of its calls.

    Args:
        ends: the numbers, which are used up.

    Attributes:
        begun: the step from which each process has begun.
        kinds: of the objects that train.
    """

    remote = True

    def __init__(self, ends: list[int]) -> None:
        self._ends = ends
        self.begun: list[int] = []
        self.kinds: list[object] = []

    def actor(self, make: Any, *arguments: Any, at: str = "", trains: bool = False) -> Any:
        assert trains
        self.kinds.append(make)
        self._make = lambda: make(*arguments)
        self._object = self._make()
        return self

    def call(self, method: str, *arguments: Any) -> Any:
        if self._ends and (left := self._ends[0] - 1) >= 0:
            self._ends[0] = left
        elif self._ends:
            self._ends.pop(0)
            self._object = self._make()
            raise HostLost("a host of the cluster is gone")
        found = getattr(self._object, method)(*arguments)
        if method == "begin":
            self.begun.append(found.step)
        return found

    def end(self) -> None:
        pass
