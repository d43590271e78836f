"""A tuning that is killed in the middle of a round goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

import tests
from host.records import Record, RecordStore
from host.records.store import profile_data
from tests.unit.tuning.simulated import profile
from tests.unit.tuning.test_loop import programs

_TRIALS, _BATCH, _SEEN = 24, 8, 11

# Measures until `_SEEN` records are in the store, says so, and then takes for ever.
_CHILD = f"""
import sys, time
from pathlib import Path
from tests.unit.tuning.simulated import SimulatedRunner
from tests.unit.tuning.test_loop import options, run

class Slow(SimulatedRunner):
    def measure(self, task, library):
        if len(self.done) == {_SEEN}:
            print("now", flush=True)
            time.sleep(600)
        return super().measure(task, library)

folder = Path(sys.argv[1])
run(folder, options({_TRIALS}, {_BATCH}, concurrent=True), runner=Slow(folder))
"""
_AGAIN = f"""
import sys
from pathlib import Path
from tests.unit.tuning.test_loop import options, run

result = run(Path(sys.argv[1]), options({_TRIALS}, {_BATCH}, concurrent=True))
print(result.trials, result.measured_now, result.stopped)
"""


def child(code: str, folder: Path) -> subprocess.Popen[str]:
    root = str(Path(tests.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )


def records(folder: Path) -> list[Record]:
    with RecordStore(folder / "r.sqlite") as store:
        return list(store.select(profile_data(profile()), failed=True))


def test_killed_in_the_middle_of_a_round_nothing_is_lost_or_measured_again(tmp_path: Path) -> None:
    first = child(_CHILD, tmp_path)
    assert first.stdout is not None
    with first.stdout:
        assert first.stdout.readline() == "now\n"
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    before = records(tmp_path)
    assert len(before) == _SEEN
    second = child(_AGAIN, tmp_path)
    text, _ = second.communicate()
    assert text == f"{_TRIALS} {_TRIALS - _SEEN} trials\n"
    after = records(tmp_path)
    assert after[:_SEEN] == before
    assert len(after) == len(programs(after)) == _TRIALS


# Starts the training process, which is all that can be left of a tuning, and says its id.
_TRAINER = """
import sys, time
from pathlib import Path
from host.tuning.learning.finetuning import _TrainingProcess

worker = _TrainingProcess(Path(sys.argv[1]) / "log", 1, "")
print(worker._process.pid, flush=True)
time.sleep(600)
"""


def test_the_training_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    parent = child(_TRAINER, tmp_path)
    assert parent.stdout is not None
    with parent.stdout:
        training = psutil.Process(int(parent.stdout.readline()))
        assert training.is_running()
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    gone, _ = psutil.wait_procs([training], timeout=60)
    assert gone == [training]
