"""Logits of a language model in float32, by transformers, in a process of its own.

The process takes the memory of torch with it when it ends. It reads local files only, safetensors only, and
runs no code of the folder. Quantised weights are replaced by the values that they stand for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from host.errors import EngineError
from host.importers.decoders.quantise import QuantisedPart
from host.importers.decoders.reference.questions import (
    ERROR,
    Answers,
    Questions,
    read_answers,
    write_plan,
)

_OFFLINE = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

# What the process may take whatever the model, and for each pass through the weights: one core reads and
# dequantises about four times as much of a file of 4 bits, and 16 times as much of one of 16 bits.
_LIMIT_S, _BYTES_A_SECOND = 1800.0, 50e6


def reference_logits(folder: Path, tokens: np.ndarray, quantised: Iterable[QuantisedPart]) -> np.ndarray:
    """The logits (n, V) float32 after each of the tokens (n) of one text; see `reference_answers`."""
    return reference_answers(folder, Questions((tokens,)), quantised).logits[0]


def input_energies(
    folder: Path, texts: Sequence[np.ndarray], weights: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """The mean squares (K) float32 of what products are given in texts, by the names of their weights.

    Args:
        folder: of the model, or a GGUF file.
        texts: (n) int32 tokens each.
        weights: names in the files. The table of an embedding that is no head is left out.

    Raises:
        EngineError: see `reference_answers`; or inputs are not finite.
    """
    found = reference_answers(folder, Questions(tuple(texts), measured=tuple(weights)), ()).measured
    if not all(np.isfinite(one).all() for one in found.values()):
        raise EngineError(
            f"{folder.name}: transformers gives values that are not finite: check the model in it"
        )
    return found


def reference_answers(
    folder: Path,
    questions: Questions,
    quantised: Iterable[QuantisedPart],
) -> Answers:
    """The references that transformers computes in float32, in a process of its own.

    Args:
        folder: of the model, or a GGUF file.
        questions: what is wanted.
        quantised: matrices to replace.

    Raises:
        EngineError: transformers refused the model, crashed or took too long (`time_limit_s`).
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-reference-") as name:
        directory = Path(name)
        write_plan(directory, folder, questions, quantised)
        _run_apart(folder, directory, time_limit_s(folder, questions))
        return read_answers(directory, 0 if questions.measured else len(questions.texts))


def time_limit_s(folder: Path, questions: Questions) -> float:
    """Seconds after which the process is killed: it may read all weights from the files for each pass."""
    paths = folder.glob("*.safetensors") if folder.is_dir() else [folder]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    # Through the text by the weights in the files and by others, and where roundings are judged, with all
    # parts, with each alone in batches, and with some sets of them.
    passes = len(questions.texts) + 2 + questions.count + (8 if questions.judged else 0)
    return _LIMIT_S + passes * size / _BYTES_A_SECOND


def _run_apart(folder: Path, directory: Path, time_limit_s: float) -> None:
    """Have a process of its own write the answers to the plan in a folder.

    Raises:
        EngineError: it did not.
    """
    command = [sys.executable, "-m", "host.importers.decoders.reference.child", str(directory)]
    try:
        result = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parents[4],
            env={**os.environ, **_OFFLINE},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"{folder.name}: transformers gave no logits within {time_limit_s:.0f} s: "
            "give a smaller model, or use a faster machine"
        ) from None
    if result.returncode != 0:
        raise EngineError(f"{folder.name}: {_failure(folder, result, directory / ERROR)}")


def _failure(folder: Path, result: subprocess.CompletedProcess[str], error: Path) -> str:
    """One line about why the process ended without logits."""
    if error.is_file():
        message = str(json.loads(error.read_text())["message"]).replace(str(folder.resolve()), "it")
        reason = " ".join(message.split())[:300]
        return f"transformers cannot run it: {reason}: give a model that AutoModelForCausalLM reads"
    if result.returncode < 0:
        return f"transformers crashed on it ({signal.Signals(-result.returncode).name})"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return f"transformers ended with code {result.returncode}: {lines[-1] if lines else 'no message'}"
