"""Processes that are ended, in order or by force."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from host.closing import end_process

_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
_OBEDIENT = "import signal; print(flush=True); signal.pause()"


@pytest.mark.parametrize(("program", "by"), [(_OBEDIENT, signal.SIGTERM), (_DEAF, signal.SIGKILL)])
def test_a_process_ends_whatever_it_does(program: str, by: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end_process(process, 0.5 if by == signal.SIGKILL else 60.0)
        assert process.returncode == -by
        # The number may belong to another process by now.
        end_process(process, 0.0)
        assert process.returncode == -by
