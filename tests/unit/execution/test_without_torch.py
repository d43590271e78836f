"""What TVM's import does without."""

from __future__ import annotations

import json
import subprocess
import sys

# TVM's modules with the names of the functions that they took out of the registry.
_TAKEN = """
import json, sys, tvm_ffi, tvm.relax, tvm.s_tir
print(json.dumps({
    name: sorted(key for key, value in vars(module).items() if isinstance(value, tvm_ffi.Function))
    for name, module in sys.modules.items() if name.startswith("tvm") and module is not None
}))
"""
_COUNTED = """
import host.execution.without_torch, tvm_ffi.registry
list_names, times = tvm_ffi.registry.list_global_func_names, []
def counted():
    times.append(1)
    return list_names()
tvm_ffi.registry.list_global_func_names = counted
import tvm.relax
print(len(times), tvm_ffi.registry.list_global_func_names is counted)
"""


def _printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_modules_of_tvm_have_the_functions_that_they_have_otherwise() -> None:
    plain = json.loads(_printed("import sys; sys.modules['torch'] = None\n" + _TAKEN))
    without = json.loads(_printed("import host.execution.without_torch\n" + _TAKEN))
    assert plain == without
    assert sum(map(len, plain.values())) > 1000


def test_names_are_listed_a_few_times_and_by_the_registry_again_afterwards() -> None:
    times, restored = _printed(_COUNTED).split()
    assert 1 <= int(times) < 10
    assert restored == "True"
