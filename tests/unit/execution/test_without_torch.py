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
# Operators with the names that TVM's printer has for them.
_PRINTED = """
import json, tvm
names = sorted(str(name) for name in tvm.ir.Op.list_op_names())
print(json.dumps({name: str(tvm.ir.Op.get(name).get_attr("TScriptPrinterName")) for name in names}))
"""
# What TVM is asked for during its import and does not have.
_MISSED = """
import host.execution.without_torch, sys, tvm_ffi, tvm_ffi.core
missed = []
index_of, fill = tvm_ffi.core._object_type_key_to_index, tvm_ffi.init_ffi_api
def index(key):
    found = index_of(key)
    if found is None:
        missed.append(key)
    return found
def watched(function):
    def call(*arguments):
        try:
            return function(*arguments)
        except Exception:
            missed.append(str(arguments[:2]))
            raise
    return call
def fill_watched(namespace, target=None):
    fill(namespace, target)
    for name in ("GetOp", "RegisterOpAttr") if namespace == "ir" else ():
        setattr(sys.modules[target], name, watched(getattr(sys.modules[target], name)))
tvm_ffi.core._object_type_key_to_index, tvm_ffi.init_ffi_api = index, fill_watched
import tvm
import tvm.ir._ffi_api as functions
print(missed)
print(tvm_ffi.core._object_type_key_to_index is index, tvm_ffi.init_ffi_api is fill_watched)
print(functions.GetOp.__name__, functions.RegisterOpAttr.__name__)
try:
    tvm.ir.Op.get("relax.no_such_operator")
except AttributeError as error:
    print("no_such_operator" in str(error) and "TVM has no operator" not in str(error))
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


def test_operators_print_as_they_do_otherwise() -> None:
    plain = json.loads(_printed("import sys; sys.modules['torch'] = None\n" + _PRINTED))
    assert json.loads(_printed("import host.execution.without_torch\n" + _PRINTED)) == plain
    assert len(plain) > 1000
    assert sum(name != "None" for name in plain.values()) > 500


def test_tvm_makes_no_error_during_its_import_and_is_as_before_afterwards() -> None:
    missed, restored, functions, own_error = _printed(_MISSED).splitlines()
    assert missed == "[]"
    assert restored == "True True"
    assert functions == "call call"
    assert own_error == "True"
