"""Work by number over several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from host.errors import ScheduleError, TlmError
from host.execution import JobCrashed
from research.pretraining.ordered_pool import in_order


def _slow_first(folder: Path, number: int) -> tuple[int, int]:
    """The first waits for the second."""
    if number == 1:
        (folder / "one").touch()
    while number == 0 and not (folder / "one").exists():
        pass
    return number, os.getpid()


def _dies(number: int) -> int:
    if number == 5:
        os._exit(9)
    return number


def _heeds_interrupts(number: int) -> bool:
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def _fails(number: int) -> int:
    if number == 2:
        raise ScheduleError("no program")
    return number


def test_results_are_in_order_and_from_several_processes(tmp_path: Path) -> None:
    found = list(in_order(partial(_slow_first, tmp_path), range(40), 2))
    assert [number for number, _ in found] == list(range(40))
    processes = {process for _, process in found}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_one_job_works_in_this_process(tmp_path: Path) -> None:
    assert {process for _, process in in_order(partial(_slow_first, tmp_path), range(1, 3), 1)} == {
        os.getpid()
    }


def test_a_process_that_dies_is_an_error_of_one_line() -> None:
    with pytest.raises(TlmError, match="ended before its work was done") as caught:
        list(in_order(_dies, range(60), 2))
    assert "\n" not in str(caught.value)


@pytest.fixture
def heeding() -> Iterator[None]:
    """Whoever started the tests may ignore Ctrl-C, as a shell does for what runs behind a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding")
def test_ctrl_c_is_left_to_the_process_that_was_started() -> None:
    assert not any(in_order(_heeds_interrupts, range(2), 2))
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_errors_of_the_work_come_through() -> None:
    with pytest.raises(ScheduleError, match="no program"):
        list(in_order(_fails, range(60), 2))


class _Hosts:
    """An engine of other processes, which does each job when its result is asked for."""

    remote = True
    cluster = ""

    def __init__(self) -> None:
        self.submitted: list[int] = []

    def cores(self) -> int:
        return 2

    def share(self, value: Any) -> Any:
        return value

    def submit(self, function: Any, *arguments: Any) -> Any:
        self.submitted.append(arguments[-1])
        return SimpleNamespace(result=lambda: function(*arguments), cancel=lambda: True)


def test_hosts_of_an_engine_give_the_same_order_and_get_no_more_than_they_can_do_soon() -> None:
    hosts = _Hosts()
    found = in_order(str, range(100), 1, hosts)  # type: ignore[arg-type]
    assert next(found) == "0"
    assert len(hosts.submitted) == 33
    assert [*found] == [str(number) for number in range(1, 100)]
    assert hosts.submitted == [*range(100)]


def test_an_example_that_ends_its_process_is_said() -> None:
    def crashed() -> None:
        raise JobCrashed("the process of a job ended 4 times")

    hosts = _Hosts()
    hosts.submit = lambda *arguments: SimpleNamespace(result=crashed, cancel=lambda: True)  # type: ignore[method-assign]
    with pytest.raises(TlmError, match=r"an example ends the process that makes it: .*ended 4 times"):
        list(in_order(str, range(3), 1, hosts))  # type: ignore[arg-type]
