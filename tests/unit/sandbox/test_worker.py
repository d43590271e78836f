"""A worker's confinement on this machine's kernel, its limits, and what its parent hears."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.errors import DeviceFull, EdgeError, ShapeError
from host.sandbox import Limits, Outcome, Unforeseen, Worker, WorkerLost, forked, scratch_folder
from host.sandbox.kernel import filter_program
from host.sandbox.watch import await_end, usage

LIMITS = Limits(memory_bytes=1 << 30, cpu_s=60, time_s=120, file_bytes=1 << 24)
TASKS = "tests.unit.sandbox.tasks"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "inside").write_text("inside")
    return tmp_path


def _attempts(place: Path, forking: bool) -> dict[str, str]:
    request = {"secret": str(place / "secret"), "inside": str(place / "given" / "inside")}
    read = [ROOT / "tests", place / "given"]
    if forking:
        with scratch_folder() as scratch:
            outcome = forked(f"{TASKS}:attempts", request, read, scratch, LIMITS)
        assert outcome.kind == "ok", outcome.message
        return dict(outcome.value)
    with Worker(read, LIMITS) as worker:
        found = dict(worker.call(f"{TASKS}:attempts", request))
        if worker.missing:
            pytest.skip("; ".join(worker.missing))
    return found


@pytest.mark.parametrize("forking", [False, True])
def test_a_worker_reaches_nothing_that_it_was_not_given(place: Path, forking: bool) -> None:
    found = _attempts(place, forking)
    may = {"read what was given", "write in scratch", "start a child"}
    assert {name for name, result in found.items() if result == "done"} == may
    assert (place / "secret").read_text() == "secret" and not (place / "new").exists()
    assert (place / "given" / "inside").read_text() == "inside"


def test_a_worker_knows_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    with Worker([ROOT / "tests"], LIMITS) as worker:
        found = worker.call(f"{TASKS}:surroundings", {})
        scratch = worker.scratch
        assert found["folder"] == found["home"] == str(scratch)
        assert "MY_TOKEN" not in found["names"]
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("task", "request_", "kind", "said"),
    [
        ("allocate", {"size": 2 << 30, "pieces": 64}, "memory", "memory"),
        ("allocate", {"size": 1 << 42, "pieces": 1}, "memory", "memory"),
        ("allocate_in_children", {"size": 2 << 30, "children": 4}, "memory", "over 1.1 GB"),
        ("spin", {}, "time", "over 2 s"),
        ("sleep", {}, "time", "over 2 s"),
        ("crash", {}, "crash", "SIGSEGV"),
        ("leave", {}, "crash", "code 3"),
        ("end_slowly", {}, "crash", "ended with code 3"),
        ("say", {"size": 65 << 20}, "crash", "its answer has over 64 MiB"),
        ("fail", {"kind": "memory"}, "memory", "memory"),
        ("unsayable", {}, "crash", "not finite|NaN"),
    ],
)
def test_what_is_over_a_limit_ends_with_a_line(
    task: str, request_: dict[str, object], kind: str, said: str
) -> None:
    waiting = 4.0 if task == "sleep" else 100.0
    limits = Limits(1 << 30, 2.0 if kind == "time" else 60.0, waiting, 1 << 24)
    with Worker([ROOT / "tests"], limits) as worker, pytest.raises(WorkerLost, match=said) as lost:
        worker.call(f"{TASKS}:{task}", request_)
    assert lost.value.kind == kind and str(lost.value).isprintable()
    outcome = _forked(task, request_, limits)
    assert outcome.kind == kind and outcome.message.isprintable() and outcome.seconds > 0
    if task == "allocate_in_children":
        assert outcome.memory_bytes > 1 << 30


def test_what_libraries_take_does_not_count_against_the_limit_of_an_answer() -> None:
    """An installer may leave them without compiled modules."""
    limits = Limits(1 << 30, 0.7, 100.0, 1 << 24)
    with Worker([ROOT / "tests"], limits, ("tests.unit.sandbox.slow_library",)) as worker:
        assert worker.call(f"{TASKS}:surroundings", {})["folder"] == str(worker.scratch)
    with Worker([ROOT / "tests"], limits) as worker, pytest.raises(WorkerLost, match="over 1 s"):
        worker.call(f"{TASKS}:spin", {})


def test_a_worker_is_watched_while_its_parent_is_busy() -> None:
    with Worker([ROOT / "tests"], Limits(1 << 30, 0.7, 100.0, 1 << 24)) as worker:

        def until_it_is_ended() -> None:
            ends = time.monotonic() + 60
            while worker._process.returncode is None:
                assert time.monotonic() < ends, "nobody watches it"
                time.sleep(0.01)

        with pytest.raises(WorkerLost) as lost:
            worker.call(f"{TASKS}:spin", {}, until_it_is_ended)
    assert lost.value.kind == "time"


def test_a_parent_that_gives_up_waits_for_no_answer() -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    with Worker([ROOT / "tests"], LIMITS) as worker, pytest.raises(KeyboardInterrupt):
        worker.call(f"{TASKS}:sleep", {}, give_up)


def test_memory_of_the_parent_does_not_count_against_the_limit() -> None:
    """As in a process that has run a thousand other tests."""
    with mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        # Long enough for the watch to look several times.
        small = {"size": 1 << 28, "pieces": 4, "seconds": 1.0}
        assert _forked("allocate", small, LIMITS).kind == "ok"
        assert _forked("allocate", {"size": 2 << 30, "pieces": 64}, LIMITS).kind == "memory"


def _forked(task: str, request: dict[str, object], limits: Limits) -> Outcome:
    with scratch_folder() as scratch:
        return forked(f"{TASKS}:{task}", request, [ROOT / "tests"], scratch, limits)


def test_errors_of_ours_come_back_as_themselves_and_fit_to_be_shown() -> None:
    with Worker([ROOT / "tests"], LIMITS) as worker:
        with pytest.raises(ShapeError, match=r"x\\x1b\[31m fits not"):
            worker.call(f"{TASKS}:fail", {"kind": "shape"})
        with pytest.raises(Unforeseen, match="PanicException: index out of bounds"):
            worker.call(f"{TASKS}:panic", {})
        with pytest.raises(Unforeseen, match="KeyError") as error:
            worker.call(f"{TASKS}:fail", {"kind": "other"})
        assert str(error.value).isprintable() and isinstance(error.value, EdgeError)
        assert worker.call(f"{TASKS}:surroundings", {})["home"]  # it lives on
    assert _forked("fail", {"kind": "shape"}, LIMITS).kind == "error"
    assert _forked("fail", {"kind": "other"}, LIMITS).kind == "unforeseen"


def test_a_file_has_a_greatest_size() -> None:
    with Worker([ROOT / "tests"], LIMITS) as worker, pytest.raises(DeviceFull):
        worker.call(f"{TASKS}:write_much", {"size": 1 << 30})


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker([ROOT / "tests"], LIMITS) as worker:
        yield worker


def test_nothing_outlives_a_worker(worker: Worker) -> None:
    with pytest.raises(WorkerLost):
        worker._limits = Limits(1 << 30, 1.0, 60.0, 1 << 24)
        worker.call(f"{TASKS}:spin", {})
    worker.close()
    ended = time.monotonic() + 60
    while any(_runs(entry.name, "while True: pass") for entry in Path("/proc").iterdir()):
        assert time.monotonic() < ended
        time.sleep(0.05)


def _runs(pid: str, text: str) -> bool:
    try:
        return pid.isdigit() and Path("/proc", pid, "cmdline").read_bytes().endswith(text.encode() + b"\0")
    except OSError:
        return False


def test_usage_adds_up_a_tree_of_processes(tmp_path: Path) -> None:
    for pid, children, memory, ticks in ((10, "11 12", 100, 3), (11, "", 20, 4), (12, "99", 3, 5)):
        task = tmp_path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(pid) / "status").write_text(
            f"Name:\tx\nRssAnon:\t{memory} kB\nRssShmem:\t1 kB\nRssFile:\t9 kB\n"
        )
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) b) S " + "0 " * 10 + f"{ticks} 1 1 1 0 0\n")
    found = usage(10, tmp_path)
    assert found.memory_bytes == 126 << 10
    assert found.cpu_s * os.sysconf("SC_CLK_TCK") == pytest.approx(21)


@pytest.mark.parametrize("column", [0, 1])
def test_the_filter_answers_every_call(column: int) -> None:
    """The bytecode, run here: sockets are refused, reading is not, other architectures end the process."""
    program = filter_program(column, 7)
    steps = [program[index : index + 8] for index in range(0, len(program), 8)]

    def run(architecture: int, number: int) -> int:
        loaded, at = 0, 0
        while True:
            code, yes, no = steps[at][0], steps[at][2], steps[at][3]
            value = int.from_bytes(steps[at][4:], "little")
            at += 1
            if code == 0x06:
                return value
            if code == 0x20:
                loaded = {0: number, 4: architecture}[value]
            else:
                at += yes if (loaded == value if code == 0x15 else loaded >= value) else no

    socket_number, read_number = ((41, 0), (198, 63))[column]
    assert run(7, socket_number) == 0x00050001 and run(7, read_number) == 0x7FFF0000
    assert run(7, (101, 117)[column]) == 0x00050001
    assert run(8, read_number) == 0x80000000 and run(7, 0x40000000) == 0x00050001


def test_an_interruption_does_not_wait_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(watch: object, buffer: bytes) -> tuple[bytes, bytes]:
        raise KeyboardInterrupt

    monkeypatch.setattr("host.sandbox.worker._Watch.line", interrupted)
    monkeypatch.setattr("host.sandbox.worker.await_end", lambda *_: pytest.fail("it waits"))
    with pytest.raises(KeyboardInterrupt):
        _forked("say", {"size": 1}, LIMITS)


def test_where_the_system_waits_for_children_the_wait_is_over() -> None:
    """As in a process that was started with SIGCHLD ignored: nobody finds the end of a child."""
    child = subprocess.Popen(["true"])
    child.wait()
    await_end(child.pid, 60.0)
