"""The agent runs on Python 3.8, which JetPack 5 has: no name, argument or type expression is newer.

From "What's New in Python" 3.9 to 3.14 and the notes "Added in version" of the library's documentation; those
names that software for boards may want. Syntax is looked at in test_board.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "device_agent").rglob("*.py"))

NEWER_MODULES = {"zoneinfo", "graphlib", "tomllib", "annotationlib", "compression", "string.templatelib"}
NEWER_NAMES = {
    "argparse": {"BooleanOptionalAction"},
    "ast": {"unparse"},
    "asyncio": {"to_thread", "TaskGroup", "timeout", "Runner"},
    "collections.abc": {"Buffer"},
    "contextlib": {"aclosing", "chdir"},
    "dataclasses": {"KW_ONLY"},
    "functools": {"cache", "Placeholder"},
    "hashlib": {"file_digest"},
    "inspect": {"get_annotations"},
    "itertools": {"pairwise", "batched"},
    "locale": {"getencoding"},
    "math": {"lcm", "nextafter", "ulp", "cbrt", "exp2", "sumprod", "fma"},
    "operator": {"call"},
    "os": {
        "eventfd",
        "pidfd_open",
        "waitstatus_to_exitcode",
        "splice",
        "posix_openpt",
        "setns",
        "unshare",
        "process_cpu_count",
        "P_PIDFD",
    },
    "random": {"randbytes"},
    "shutil": {"readlink"},
    "signal": {"pidfd_send_signal"},
    "socket": {"send_fds", "recv_fds"},
    "statistics": {"covariance", "correlation", "linear_regression", "kde"},
    "sys": {"orig_argv", "stdlib_module_names", "exception", "activate_stack_trampoline", "monitoring"},
    "threading": {"gettrace", "getprofile", "setprofile_all_threads"},
    "types": {"EllipsisType", "NoneType", "NotImplementedType", "UnionType"},
    "typing": {
        "Annotated",
        "Concatenate",
        "Never",
        "NotRequired",
        "ParamSpec",
        "Required",
        "Self",
        "TypeAlias",
        "TypeGuard",
        "Unpack",
        "assert_never",
        "override",
    },
}
NEWER_METHODS = {
    "removeprefix",
    "removesuffix",
    "bit_count",
    "is_relative_to",
    "with_stem",
    "hardlink_to",
    "with_segments",
    "add_note",
}
NEWER_ARGUMENTS = {
    "zip": {"strict"},
    "dataclass": {"slots", "kw_only", "match_args", "weakref_slot"},
    "rmtree": {"onexc"},
    "run": {"process_group"},
    "Popen": {"process_group", "user", "group", "extra_groups", "umask", "pipesize"},
    "ArgumentParser": {"exit_on_error", "suggest_on_error", "color"},
    "bisect_left": {"key"},
    "bisect_right": {"key"},
    "TemporaryDirectory": {"ignore_cleanup_errors", "delete"},
    "NamedTemporaryFile": {"delete_on_close"},
}
NEWER_BUILTINS = {"aiter", "anext", "ExceptionGroup", "BaseExceptionGroup", "EncodingWarning"}
# That can be subscripted, or joined by |, since 3.9 and 3.10.
TYPES = {"list", "dict", "tuple", "set", "frozenset", "type", "int", "str", "bytes", "float", "bool", "None"}


def imported(tree: ast.Module) -> dict[str, str]:
    """Names of a file that stand for modules."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
    return names


def annotations(tree: ast.Module) -> set[int]:
    """Nodes that are never evaluated, because annotations are postponed."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            every += [one for one in (arguments.vararg, arguments.kwarg) if one]
            roots += [one.annotation for one in every if one.annotation]
            roots += [node.returns] if node.returns else []
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
    return {id(inner) for root in roots for inner in ast.walk(root)}


def newer(source: str) -> Iterator[str]:
    """What of a file Python 3.8 does not have."""
    tree = ast.parse(source)
    modules, unread = imported(tree), annotations(tree)
    # Those of typing can be subscripted, those of collections since 3.9.
    generic = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("collections", "collections.abc")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in NEWER_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in NEWER_MODULES:
                yield node.module
            yield from (a.name for a in node.names if a.name in NEWER_NAMES.get(node.module, ()))
        elif isinstance(node, ast.Attribute):
            module = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if node.attr in NEWER_NAMES.get(module or "", ()) or node.attr in NEWER_METHODS:
                yield node.attr
        elif isinstance(node, ast.Name) and node.id in NEWER_BUILTINS:
            yield node.id
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from (k.arg for k in node.keywords if k.arg in NEWER_ARGUMENTS.get(name, ()))
        elif id(node) in unread:
            continue
        elif isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Name, ast.Attribute)):
            name = ast.unparse(node.value)
            if name in TYPES | generic or name.startswith(
                ("queue.", "collections.", "subprocess.", "os.PathLike")
            ):
                yield ast.unparse(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [ast.unparse(side) for side in (node.left, node.right)]
            if any(side in TYPES or side.startswith("{") for side in sides):
                yield ast.unparse(node)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_newer_than_python_3_8(file):
    assert list(newer(file.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import tomllib",
        "from functools import cache",
        "import functools\n@functools.cache\ndef f(): pass",
        "'a'.removeprefix('b')",
        "zip(a, b, strict=True)",
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass A: pass",
        "x = list[int]",
        "from collections.abc import Callable\nx = Callable[[int], int]",
        "import queue\nx = queue.Queue[int]()",
        "isinstance(x, int | None)",
        "y = x | {'a': 1}",
        "import os\nos.pidfd_open(1)",
        "import subprocess as s\ns.run(['x'], process_group=0)",
        "import math as m\nm.lcm(1, 2)",
        "(5).bit_count()",
    ],
)
def test_newer_things_are_found(source):
    assert list(newer(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: list[int] | None) -> dict[str, int]: return x | 1",
        "class A:\n    x: list[int]",
        "x: queue.Queue[int] = queue.Queue()",
        "flags = os.O_RDONLY | os.O_CLOEXEC",
        "from typing import List\nx = List[int]",
    ],
)
def test_what_is_not_evaluated_or_old_is_let_pass(source):
    assert list(newer(source)) == []
