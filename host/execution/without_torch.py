"""TVM without PyTorch, for processes that build, measure or read models: imported before all others.

TVM's package imports PyTorch where it is installed, which takes twice as long as all the rest, and 200 MB.
After this module, TVM goes without; PyTorch can be imported before or later all the same, and nothing is
imported by this module itself. Nor does TVM list the names of all its functions for each of its modules then,
or make errors of its own for what its modules try in vain, which takes as long as all the rest.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
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
            with contextlib.ExitStack() as stack:
                if module.__name__ == _TVM[0]:
                    stack.enter_context(_names_listed_once())
                    stack.enter_context(_errors_of_the_import_outside())
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


@contextlib.contextmanager
def _errors_of_the_import_outside() -> Iterator[None]:
    """Answer what modules of TVM try in vain as TVM does, without an error inside of it.

    They try a hundred types and operators that the library lacks, and drop the errors. The first error of a
    process reads the symbols of all libraries for its backtrace, which takes a third of the import.
    """
    package: Any = importlib.import_module("tvm_ffi")
    core: Any = importlib.import_module("tvm_ffi.core")
    registry: Any = importlib.import_module("tvm_ffi.registry")
    index_of, fill = core._object_type_key_to_index, package.init_ffi_api
    types, operators = _Names(registry.get_registered_type_keys), list[_Operators]()

    def index(key: str) -> int | None:
        return index_of(key) if key in types else None

    def fill_and_look(namespace: str, target: str | None = None) -> None:
        fill(namespace, target)
        if namespace == "ir":
            operators.append(_Operators(sys.modules[target or namespace]))

    core._object_type_key_to_index, package.init_ffi_api = index, fill_and_look
    try:
        yield
    finally:
        core._object_type_key_to_index, package.init_ffi_api = index_of, fill
        for one in operators:
            one.restore()


class _Operators:
    """TVM's operators while its modules are imported.

    Args:
        functions: the module that calls TVM, of which some functions are replaced.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        self._names = _Names(functions.ListOpNames)
        self._get, self._set = functions.GetOp, functions.RegisterOpAttr
        functions.GetOp, functions.RegisterOpAttr = self._operator, self._set_attribute

    def restore(self) -> None:
        """Put the functions back."""
        self._functions.GetOp, self._functions.RegisterOpAttr = self._get, self._set

    def _operator(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"TVM has no operator {name}")
        return self._get(name)

    def _set_attribute(self, name: str, key: str, value: Any, level: int) -> None:
        # A name for the printer that the library has given already, in some cases with the same level.
        named = isinstance(value, str) and name in self._names
        if not named or self._functions.OpGetAttr(self._get(name), key) != value:
            self._set(name, key, value, level)
            self._names.add(name)


class _Names:
    """Names that a library has, of which there are more over time.

    Args:
        list_names: all of them.
    """

    def __init__(self, list_names: Callable[[], Sequence[Any]]) -> None:
        self._list_names = list_names
        self._known: set[str] = set()

    def add(self, name: str) -> None:
        """The library has it now."""
        self._known.add(name)

    def __contains__(self, name: str) -> bool:
        if name not in self._known:
            names = self._list_names()
            if len(names) != len(self._known):
                self._known = {str(one) for one in names}
        return name in self._known


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
