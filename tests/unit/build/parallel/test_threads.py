"""Kernels that are compiled while the next ones are found."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from host.build.threads import compiled_in_threads, compiled_with_defaults
from host.errors import BuildError

_PATIENCE_S = 60.0


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("build")]


def test_the_first_kernel_is_compiled_before_the_last_is_found() -> None:
    compiled = threading.Event()

    def names() -> Iterator[str]:
        yield "first"
        assert compiled.wait(_PATIENCE_S)
        yield "last"

    def compile_one(name: str) -> str:
        compiled.set()
        return name.upper()

    seen: list[tuple[int, int, str]] = []
    made = compiled_in_threads(names(), compile_one, lambda *step: seen.append(step), 1)
    assert list(made.items()) == [("first", "FIRST"), ("last", "LAST")]
    assert [(done, total) for done, total, _ in seen] == [(1, 2), (2, 2)]


def test_what_ends_the_search_ends_the_compilation() -> None:
    """The first kernel is at work then, and no other one begins."""
    begun, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def names() -> Iterator[str]:
        yield from ("first", "second", "third")
        assert begun.wait(_PATIENCE_S)
        may_end.set()
        raise KeyboardInterrupt

    def compile_one(name: str) -> str:
        begun.set()
        assert may_end.wait(_PATIENCE_S)
        ended.append(name)
        return name

    with pytest.raises(KeyboardInterrupt):
        compiled_in_threads(names(), compile_one, None, 1)
    assert ended[:1] == ["first"] and "third" not in ended
    assert not _threads()


def test_a_kernel_that_does_not_compile_gets_its_default_while_others_are_found() -> None:
    given = {"good", "bad"}

    def compile_given(name: str) -> str:
        if name == "bad":
            raise BuildError("it does not compile")
        return "given"

    kernels, refused = compiled_with_defaults(
        iter(["bad", "good", "other"]), given, compile_given, lambda name: "default", None, 2
    )
    assert kernels == {"bad": "default", "good": "given", "other": "default"}
    assert refused == {"bad": "it does not compile"}
