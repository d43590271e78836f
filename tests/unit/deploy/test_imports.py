"""What a deployment loads before it needs it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import host.deploy, sdk.api, sdk.report.html
print(sorted({"tvm", "torch", "sqlalchemy", "scipy"} & sys.modules.keys()))
"""
BEFORE_THE_WORKER = """
import sys
import sdk.api, sdk.cli.main, sdk.cli.commands.deploy
from host.importers import start_ahead
print(sorted({"numpy", "tvm"} & sys.modules.keys()))
"""
IN_THE_WORKER = """
import sys
import host.execution.without_torch, host.importers.worker.child, host.importers.onnx.importer
print(sorted({"onnx.reference", "torch"} & sys.modules.keys()))
"""


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_compiler_is_loaded_while_the_model_file_is_read() -> None:
    """In front of that it would delay the device and the request to the worker by more than a second."""
    assert _printed(PROGRAM) == "[]\n"


def test_the_worker_that_reads_the_file_is_started_first() -> None:
    """What this process needs is loaded while the worker loads the same."""
    assert _printed(BEFORE_THE_WORKER) == "[]\n"


def test_the_worker_loads_what_most_files_need() -> None:
    assert _printed(IN_THE_WORKER) == "[]\n"
