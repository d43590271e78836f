"""TVM without PyTorch, for processes that build, measure or read models: imported before all others.

TVM's package imports PyTorch where it is installed, which takes twice as long as all the rest, and 200 MB.
After this module, TVM goes without; PyTorch can be imported before or later all the same, and nothing is
imported by this module itself. Nor does TVM list the names of all its functions for each of its modules then.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_TVM, _TORCH = ("tvm", "tvm_ffi"), "torch"


class _Loader(SourceFileLoader):
    """Loads a package while PyTorch cannot be imported."""

    def exec_module(self, module: ModuleType) -> None:
        # An entry of None is how an import is withheld.
        sys.modules[_TORCH] = None  # type: ignore[assignment]
        try:
            with _names_listed_once() if module.__name__ == _TVM[0] else contextlib.nullcontext():
                super().exec_module(module)
        finally:
            del sys.modules[_TORCH]


@contextlib.contextmanager
def _names_listed_once() -> Iterator[None]:
    """Keep the names of TVM's functions between the modules of TVM that take theirs out of all of them.

    There are thousands of names and fifty such modules. The names are listed again where there are more.
    """
    registry: Any = importlib.import_module("tvm_ffi.registry")
    list_names, known = registry.list_global_func_names, list[str]()

    def names() -> list[str]:
        count = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1)
        if count != len(known):
            known[:] = list_names()
        return known

    registry.list_global_func_names = names
    try:
        yield
    finally:
        registry.list_global_func_names = list_names


class _Finder(MetaPathFinder):
    """Finds TVM's packages before others do, unless PyTorch is there already, or withheld."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _TVM or _TORCH in sys.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder())
