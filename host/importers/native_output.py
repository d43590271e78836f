"""Quieting native code: TVM's C++ writes warnings straight to the standard error descriptor."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from host.errors import ImportFailed, one_line

_Made = TypeVar("_Made")


def converted(convert: Callable[[], _Made], what: str) -> _Made:
    """Convert a model with a frontend, while no output of native code reaches the terminal.

    Args:
        convert: calls the frontend.
        what: is converted, for messages.

    Raises:
        ImportFailed: the frontend failed, with its reason in one line.
    """
    failures: list[ImportFailed] = []
    # A frontend that fails leaves half-built functions behind. They complain when they are freed, which
    # has to happen before the block ends: the error that refers to them must not leave the block.
    with quiet():
        try:
            return convert()
        except ImportFailed as error:
            failures.append(ImportFailed(str(error), error.operator))
        except Exception as error:  # noqa: BLE001 - frontends raise what they like
            reason = one_line(error)[:200]
            failures.append(ImportFailed(f"the {what} cannot be converted: {reason}"))
    raise failures[0]


@contextlib.contextmanager
def converting(operator: str) -> Iterator[None]:
    """Names the operator in whatever a frontend raises of it.

    Args:
        operator: its name.

    Raises:
        ImportFailed: it is not converted, with the reason in one line.
    """
    try:
        yield
    except ImportFailed as error:
        if error.operator is not None:
            raise
        raise ImportFailed(f"operator {operator}: {error}", operator) from error
    except Exception as error:  # frontends assert, raise and forward the errors of C++
        reason = one_line(error)[:200] or type(error).__name__
        raise ImportFailed(f"operator {operator} cannot be converted: {reason}", operator) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep all output of native code off the terminal, that of objects that are destroyed within included."""
    sys.stderr.flush()
    kept = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        gc.collect()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)
