"""A full disk while programs are built is an error of the disk, and no verdict on a program."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
import tvm

from host.build import linker
from host.build.object_code import object_code
from host.errors import BuildError, DeviceFull

NOTHING = tvm.get_global_func("target.build.llvm")


def test_object_code_is_written_to_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = NOTHING(tvm.IRModule(), tvm.target.Target("llvm"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    code = object_code(module)
    assert code[:4] == b"\x7fELF"
    monkeypatch.undo()
    monkeypatch.delattr(os, "memfd_create")
    assert object_code(module) == code


FULL = "no space left while linking net.so: free some and run again"


@pytest.mark.parametrize(
    ("code", "said", "kind", "words"),
    [
        (1, f"ld.lld: error: {os.strerror(errno.ENOSPC)}\n", DeviceFull, FULL),
        (-signal.SIGBUS, "", DeviceFull, FULL),
        (
            1,
            "ld.lld: error: undefined symbol: f\n",
            BuildError,
            "linking net.so failed: ld.lld: error: undefined symbol: f",
        ),
        (-signal.SIGKILL, "", BuildError, "linking net.so failed: lld ended with code -9; run again"),
    ],
)
def test_a_linker_without_space_is_no_fault_of_the_program(
    code: int,
    said: str,
    kind: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = subprocess.CompletedProcess([], code, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *given, **named: done)
    with pytest.raises(kind) as caught:
        linker.link_shared([], tmp_path / "net.so", "x86_64")
    assert type(caught.value) is kind and str(caught.value) == words
    assert list(tmp_path.iterdir()) == []


def test_objects_that_do_not_fit_are_no_fault_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DeviceFull, match=r"no space left while writing .*net\.so: free some and run again"):
        linker.link_shared([], tmp_path / "net.so", "x86_64")
