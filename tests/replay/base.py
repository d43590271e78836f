"""The commit before, recorded in a worktree of its own by the recorder of today."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.replay.recorder import ROOT, ReplayError, machine, versions

_HERE = Path(__file__).resolve().parent
_ADAPTER = "adapter.py"


def commit_of(revision: str) -> str:
    """The full hash of a revision.

    Raises:
        ReplayError: there is none.
    """
    return _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")


def is_clean() -> bool:
    """Whether the working tree is what is committed."""
    return not _git("status", "--porcelain")


def recording_for(commit: str, name: str, cache: Path, only: str = "") -> Path:
    """Where the recording of a commit lies or belongs; `only` is the part of the subjects' names."""
    recorder = "".join(file.read_text() for file in _recorder_files())
    known = json.dumps([commit, name, only, versions(), machine(), recorder])
    return (
        cache / "recordings" / f"{name}-{commit[:12]}-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsonl"
    )


def record_commit(commit: str, name: str, cache: Path, jobs: int, only: str = "") -> Path:
    """The recording of a commit, from the cache or made now.

    The recorder is this one; the adapter is the commit's own where it has one.

    Raises:
        ReplayError: it cannot be recorded.
    """
    out = recording_for(commit, name, cache, only)
    if out.is_file():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    with _worktree(commit) as folder:
        _lay_over(folder)
        arguments = ["--set", name, "--out", str(out), "--cache", str(cache), "--jobs", str(jobs), "--resume"]
        arguments += ["--only", only] if only else []
        command = [sys.executable, "-m", "tests.replay", "record", *arguments]
        # First in the path, before the folder that an editable installation names.
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(command, cwd=folder, env=environment, check=False)
    if done.returncode != 0:
        raise ReplayError(f"commit {commit[:12]} could not be recorded: exit code {done.returncode}")
    return out


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="edgetlm-base-") as name:
        folder = Path(name).resolve() / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _lay_over(folder: Path) -> None:
    place = folder / "tests" / "replay"
    place.mkdir(parents=True, exist_ok=True)
    for file in _recorder_files():
        shutil.copyfile(file, place / file.name)
    if not (place / _ADAPTER).is_file():
        shutil.copyfile(_HERE / _ADAPTER, place / _ADAPTER)


def _recorder_files() -> list[Path]:
    return [file for file in sorted(_HERE.glob("*.py")) if file.name != _ADAPTER and "test" not in file.name]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no such revision"])[0]
        raise ReplayError(f"git {' '.join(arguments)}: {reason}")
    return done.stdout.strip()
