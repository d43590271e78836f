"""The memory that C++ finds is what Python finds: the machine's, within the limits of control groups."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

import device_agent
from host.build.linker import zig_executable
from host.payload.contract_header import write_headers
from tests.unit.device_agent.execute.test_free_memory import CASES, written

_MAIN = """
#include <cstdio>

#include "contract/free_memory.h"

int main(int, char** given) {
  std::printf("%lld", static_cast<long long>(edgetlm::free_bytes(given[1], given[2], given[3])));
}
"""

# The first compilation of a machine makes a C++ library.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints the free bytes for three files."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.cc").write_text(_MAIN)
    write_headers(folder)
    native = Path(device_agent.__file__).parent / "native"
    sources = [folder / "main.cc", native / "contract" / "free_memory.cc"]
    # The system, -O2 and -s are those of the native executor: zig's C++ library is compiled once for both.
    options = ["-target", f"{platform.machine()}-linux-gnu.2.28", "-std=c++17", "-O2", "-s"]
    options += ["-Wall", "-Wextra", "-Werror", f"-I{native}", f"-I{folder}"]
    command = [zig_executable(), "c++", *options, *sources, "-o", folder / "program"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "program"


@pytest.mark.parametrize("case", range(len(CASES)))
def test_limits_of_control_groups_count(case: int, program: Path, tmp_path: Path) -> None:
    arguments, expected = written(tmp_path, case)
    found = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert int(found) == expected
