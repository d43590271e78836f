"""What a deployment loads before it needs it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import host.deploy, sdk.api, sdk.report.html
print(sorted({"tvm", "torch"} & sys.modules.keys()))
"""


def test_the_compiler_is_loaded_while_the_model_file_is_read() -> None:
    """In front of that it would delay the device and the request to the worker by more than a second."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
