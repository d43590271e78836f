"""Kernels that are compiled while the next ones are found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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
    assert [done for done, _, _ in seen] == [1, 2] and seen[-1] == (2, 2, "last")


def test_what_ends_the_search_ends_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first kernel is at work until the others are cancelled, and no other one begins."""
    begun, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            may_end.set()
            super().shutdown(wait=wait)

    def names() -> Iterator[str]:
        yield from ("first", "second", "third")
        assert begun.wait(_PATIENCE_S)
        raise KeyboardInterrupt

    def compile_one(name: str) -> str:
        begun.set()
        assert may_end.wait(_PATIENCE_S)
        ended.append(name)
        return name

    monkeypatch.setattr("host.build.threads.ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        compiled_in_threads(names(), compile_one, None, 1)
    assert ended == ["first"]
    assert not _threads()


def test_a_kernel_that_fails_ends_the_search() -> None:
    """And those that are done are reported while others are found."""
    third_begun = threading.Event()
    reported: list[tuple[int, int, str]] = []

    def names() -> Iterator[str]:
        yield from ("good", "bad", "third")
        # The one thread is done with those before.
        assert third_begun.wait(_PATIENCE_S)
        yield "fourth"
        raise AssertionError("the search goes on")

    def compile_one(name: str) -> str:
        if name == "bad":
            raise BuildError("it does not compile")
        if name == "third":
            third_begun.set()
        return name

    with pytest.raises(BuildError, match="does not compile"):
        compiled_in_threads(names(), compile_one, lambda *step: reported.append(step), 1)
    assert [name for _, _, name in reported] == ["good"]
    assert not _threads()


def test_a_kernel_that_does_not_compile_gets_its_default_while_others_are_found() -> None:
    given: set[str] = set()

    def names() -> Iterator[str]:
        for name in ("bad", "good"):
            given.add(name)
            yield name
        yield "other"

    def compile_given(name: str) -> str:
        if name == "bad":
            raise BuildError("it does not compile")
        return "given"

    kernels, refused = compiled_with_defaults(names(), given, compile_given, lambda name: "default", None, 2)
    assert kernels == {"bad": "default", "good": "given", "other": "default"}
    assert refused == {"bad": "it does not compile"}
