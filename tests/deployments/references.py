"""Original runtimes run models that a test has made itself in its own process.

The product runs ONNX Runtime, PyTorch and transformers in processes of their own, since a file may crash
them. Each loads its runtime anew, which takes seconds, where a model of a test takes milliseconds. The
program is the same, with the same files. Whatever fails here is given to the process, which says why.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

# Those that leave no threads behind.
_ENGINES = ("onnxruntime", "torch")


def run_here(patch: pytest.MonkeyPatch) -> None:
    """Make references in this process, and read tokenizers there, until the patch is undone."""
    from host.engines import reference as of_engines
    from host.importers.decoders import text
    from host.importers.decoders.reference import child
    from host.importers.decoders.reference import process as of_decoders
    from tests.deployments.workers import answer_here

    engine_apart, decoder_apart = of_engines._run_apart, of_decoders._run_apart

    def run_engine(path: Path, arguments: Sequence[str], time_limit_s: float) -> None:
        if arguments[0] not in _ENGINES or not _engine_ran(arguments):
            engine_apart(path, arguments, time_limit_s)

    def run_decoder(folder: Path, directory: Path, time_limit_s: float) -> None:
        with quiet():
            failed = child.run(directory)
        if failed:
            decoder_apart(folder, directory, time_limit_s)

    patch.setattr(of_engines, "_run_apart", run_engine)
    patch.setattr(of_decoders, "_run_apart", run_decoder)
    answer_here(patch, text)


def _engine_ran(arguments: Sequence[str]) -> bool:
    from device_agent.execute.engines.__main__ import main

    # In a thread, beside the conversion of the model: warnings and outputs of this process are left alone.
    try:
        return main(arguments) == 0
    except Exception:  # noqa: BLE001  # the process says what it was
        return False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the process would print is none of the test's output, and its warnings are no failures."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
