"""What the product hands to TVM's code generators, seen on its way, and objects by it.

All that the product decides about a kernel is in that module and its target: the object follows from them and
from TVM's version. So an object is compiled once for both sides of a comparison, and the comparison loses
nothing. A commit whose code generation does not come by here is not silently left out: see `Calls.text`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tests.replay.texts import text_of_module, write_whole

_LLVM, _CUDA = "target.build.llvm", "target.build.cuda"


@dataclass
class Calls:
    """What went to the code generators, in order."""

    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it.

        Raises:
            RuntimeError: nothing came by.
        """
        if not self.texts:
            raise RuntimeError("no code generator was called: the process replay looks at the wrong place")
        return "\n".join(self.texts)


@contextmanager
def watched(objects: Path | None, build: bool) -> Iterator[Calls]:
    """See every call of a code generator.

    Args:
        objects: folder of compiled objects; None compiles always.
        build: whether code is generated. Without it objects are empty, and what fails over that once code
            generators were called is no failure.
    """
    calls = Calls()
    original = tvm.get_global_func

    def get(name: str, allow_missing: bool = False) -> Any:
        found = original(name, allow_missing)
        if name == _LLVM:
            return lambda module, target: _llvm(found, module, target, calls, objects, build)
        if name == _CUDA:
            return lambda module, target: _cuda(found, module, target, calls, build)
        return found

    tvm.get_global_func = get
    try:
        yield calls
    except Exception:
        if build or not calls.texts:
            raise
    finally:
        tvm.get_global_func = original


def _llvm(
    compiler: Callable[..., Any], module: Any, target: Any, calls: Calls, objects: Path | None, build: bool
) -> Any:
    if not len(module.functions):
        # A library that only carries others; it is imported from, so it has to be TVM's own.
        return compiler(module, target)
    text = f"{text_of_module(module)}# target {target}\n"
    calls.texts.append(text)
    return _Object(text, lambda: compiler(module, target), objects) if build else _NoObject()


def _cuda(compiler: Callable[..., Any], module: Any, target: Any, calls: Calls, build: bool) -> Any:
    calls.texts.append(f"{text_of_module(module)}# target {target}\n")
    return compiler(module, target) if build else None


class _NoObject:
    """Stands for a module that nobody compiled."""

    def write_to_file(self, name: str, form: str = "o") -> None:
        """Write an empty file."""
        Path(name).write_bytes(b"")


class _Object:
    """A compiled module that is compiled when it is first wanted."""

    def __init__(self, text: str, build: Callable[[], Any], folder: Path | None) -> None:
        versions = f"{tvm.__version__}\0{tvm_ffi.__version__}\0"
        key = hashlib.sha256((versions + text).encode()).hexdigest()
        self._path = None if folder is None else folder / key[:2] / f"{key}.o"
        self._build = build

    def write_to_file(self, name: str, form: str = "o") -> None:
        """What TVM's own modules do."""
        if self._path is not None and self._path.is_file():
            Path(name).write_bytes(self._path.read_bytes())
            return
        self._build().write_to_file(name, form)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, Path(name).read_bytes())
