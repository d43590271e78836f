"""The command line on changed models: what is imported goes on to the compiler, to a bundle or one line."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NoReturn
from unittest import mock

from host.errors import EdgeError, ModelFileError
from host.importers.worker.parent import explained
from host.model import ImportedModel
from host.sandbox import Unforeseen
from tests.fuzz.case import MAX_BYTES, Case, Outcome, Tree, canaries, complaint
from tests.fuzz.children import ended
from tests.fuzz.targets.models import Models

# A compilation may take long; one that does not end is a finding.
_LONGEST_S = 180.0
_CODES = (0, 1, 2)


class Compiling:
    """The target; the first file is the model."""

    name = "compiling"
    apart = True

    def __init__(self) -> None:
        self._models = Models()

    def open(self, place: Path) -> None:
        """As for imports; the command line is loaded once too."""
        import sdk.api
        import sdk.cli.main  # noqa: F401

        self._models.open(place)
        self._place = place
        os.environ["EDGETLM_KEYS"] = str(place / "keys")
        (place / "scratch" / "tmp").mkdir(parents=True)

    def close(self) -> None:
        """Nothing is left running."""

    def corpus(self) -> list[Case]:
        """Harmful models end at their import."""
        return []

    def case(self, seed: int) -> Case:
        """One of those that are imported."""
        return self._models.case(seed)

    def run(self, case: Case) -> Outcome:
        """Compile it."""
        for name in ("models", "made", "scratch"):
            shutil.rmtree(self._place / name, ignore_errors=True)
            (self._place / name).mkdir()
        (self._place / "scratch" / "tmp").mkdir()
        path = case.write(self._place / "models")
        tree = Tree(self._place / "models", self._place / "outside")
        with (self._place / "said").open("w+b") as said:
            pid = os.fork()
            if pid == 0:
                _compile(path, self._place / "made" / "bundle", said.fileno(), self._place / "scratch")
            code = ended(pid, _LONGEST_S)
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").splitlines()
        last = lines[-1] if lines else ""
        wrong = tree.violation() or canaries(self._place)
        if not wrong and code is None:
            wrong = f"over {_LONGEST_S:.0f} s"
        elif not wrong and code not in _CODES:
            wrong = f"it ended with {code}: {last[:200]}"
        elif not wrong and code:
            wrong = complaint(last) or (f"{len(lines)} lines: {lines[:3]}" if len(lines) > 1 else "")
        if not wrong and code and any((self._place / "made").iterdir()):
            wrong = "an error leaves a bundle behind"
        return Outcome("refused" if code else "ok", last, wrong)


def _imported(path: Path, *_: object, **__: object) -> ImportedModel:
    """As `host.importers.load` tells what its worker tells it; what libraries say meanwhile is not heard."""
    from tests.fuzz.targets.model_worker import load_forked

    heard = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    failure: EdgeError | None = None
    try:
        return load_forked(path)
    except EdgeError as error:
        failure = error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - whatever libraries raise is an answer of the worker
        failure = ModelFileError(explained(path, Unforeseen(f"{type(error).__name__}: {error}")))
    finally:
        # Some speak when what they had begun is thrown away.
        gc.collect()
        os.dup2(heard, 2)
    raise failure


def _compile(path: Path, output: Path, said: int, scratch: Path) -> NoReturn:
    """What `sdk compile` does, the import in this process: that is the matter of another target."""
    from sdk.cli.main import main

    code = 99
    try:
        os.setsid()
        os.chdir(scratch)
        os.environ["TMPDIR"] = str(scratch / "tmp")
        tempfile.tempdir = None
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(said, 2)
        # Whatever stands in their places here, such as what pytest keeps of a test's words.
        sys.stdout, sys.stderr = (os.fdopen(os.dup(one), "w", errors="backslashreplace") for one in (1, 2))
        sys.argv = ["sdk", "compile", str(path), "--target", "x86_64-v3", "--threads", "1", "-o", str(output)]
        with mock.patch("host.importers.load", _imported):
            code = main()
        sys.stderr.flush()
    finally:
        os._exit(code)
