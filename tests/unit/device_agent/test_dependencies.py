"""What boards need of the agent: old Python, and nothing but the standard library and TVM's runtime."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "device_agent").rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_syntax_is_that_of_python_3_8(file):
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    postponed = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert postponed or not [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AnnAssign))]


DAEMON_MODULES = """
import sys
import device_agent.__main__
own = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(name for name in own if not name.startswith("_") and name != "device_agent"))
"""


def test_the_daemon_loads_the_standard_library_only():
    done = subprocess.run(
        [sys.executable, "-S", "-c", DAEMON_MODULES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_daemon_starts_without_the_metadata_of_packages():
    """A list of devices waits for the daemon."""
    program = "import sys, device_agent.serve.daemon; print('importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
