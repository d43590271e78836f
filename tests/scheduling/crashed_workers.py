"""A process of tests that crashes fails one test, and the others still run: a plug-in for pytest.

With `--dist loadfile`, pytest-xdist 3.8 hands what a crashed process has left to the others as it was: the
test that crashed runs again and crashes again, and a process that gets a file with nothing to run hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

# A process runs a test when it knows the next one, or that there is none.
FEWEST_WAITING = 2


class FilesOfCrashedWorkers(LoadFileScheduling):
    """Whole files for each process; of a crashed one, the tests behind the one that crashed."""

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that ran when a process ended, or nothing; the tests behind it are handed out again."""
        files = self.assigned_work.pop(node)
        waiting = [(file, test) for file, tests in files.items() for test, done in tests.items() if not done]
        if not waiting:
            return None
        file, crashed = waiting[0]
        files[file][crashed] = True
        self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < FEWEST_WAITING:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """The scheduler of pytest-xdist for `--dist loadfile`."""
    return FilesOfCrashedWorkers(config, log) if config.getvalue("dist") == "loadfile" else None
