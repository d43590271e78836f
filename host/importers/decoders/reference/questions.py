"""What a reference is asked, what it answers, and the files that carry both between two processes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from host.importers.decoders.description import Matrix
from host.importers.decoders.quantise import Form, QuantisedPart
from host.importers.decoders.reference.stored import StoredArray, StoredPart

_PLAN, _WEIGHTS, _ANSWERS = "plan.json", "weights.bin", "answers.npz"
_MEASURED = "measured/"
# Where the process of the reference writes why it has no answers.
ERROR = "error.json"


@dataclass(frozen=True, eq=False)
class Questions:
    """The inputs for which transformers computes references.

    Attributes:
        texts: (n) int32 tokens each; the logits behind each token are wanted.
        text: (n) int32, one whose logits are also wanted by the weights in the files; None without.
        prompt: tokens at the beginning of `text` that are continued.
        count: tokens of the continuation, the likeliest each time.
        rounded: sets of weights whose products may be given rounded activations, by their names in the files:
            the logits behind such a beginning of the last of `texts` are wanted too, with the first set that
            moves them by no more than `allowed`, or else the last one. None without.
        allowed: how far they may be moved, see `moved`.
        beginning: tokens of that beginning, fewer than the text has.
        attended: whether these logits are wanted a second time, with attention over the beginning that rounds
            what it multiplies to bfloat16.
        halves: whether the matrices are rounded to half precision, as the compiled model's are.
        measured: weights of products, by their names in the files: the mean squares of their inputs over all
            of `texts` are wanted, and nothing else.
        cached: whether keys and values are rounded to bytes, as the compiled model keeps them; not for the
            logits by the weights in the files.
        tiles: whether products that round do it as registers of matrices have them: activations and weights
            to bfloat16, and activations to bytes where groups of weights are not whole rows of a tile.
        kept_halves: whether it is also asked what keys and values in half precision do to logits.
    """

    texts: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    prompt: int = 0
    count: int = 0
    rounded: tuple[tuple[str, ...], ...] = ()
    allowed: float = 0.0
    beginning: int = 0
    halves: bool = False
    measured: tuple[str, ...] = ()
    cached: bool = False
    attended: bool = False
    tiles: bool = False
    kept_halves: bool = False


@dataclass(frozen=True, eq=False)
class Answers:
    """The references that transformers computed.

    Attributes:
        logits: (n, V) float32 of each of `texts`, by the quantised or rounded weights.
        text: (n, V) of `text` by the same weights; None without.
        original: (n, V) of `text` by the weights in the files; None without, or where these are quantised.
        greedy: tokens that continue the prompt, by the same weights.
        rounded: (m, V) behind the tokens of the last text after the beginning, where products of the
            beginning round what they multiply; None where that was not asked for.
        chosen: which of the sets of products that is.
        attended: the same where attention over the beginning rounds what it multiplies to bfloat16 too.
        kept_spread: how far keys and values in half precision move logits behind the last text, see `moved`.
        half_spread: how far rounding to halves moves logits behind the last text, as a share of the largest.
        measured: (K) float32 by the names that were asked for; without the table of an embedding that is no
            head, which multiplies nothing.
    """

    logits: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    original: np.ndarray | None = None
    greedy: tuple[int, ...] = ()
    rounded: np.ndarray | None = None
    half_spread: float = 0.0
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    attended: np.ndarray | None = None
    chosen: int = 0
    kept_spread: float = 0.0


def moved(exact: np.ndarray, rounded: np.ndarray | None) -> float:
    """How far logits behind the end of a text are off, as part of the largest behind the same token.

    So does the verification of a bundle judge them.

    Args:
        exact: (n, V) behind all its tokens.
        rounded: (m, V) behind the last of them, where its beginning was rounded; None where it was not.

    Returns:
        Infinite where nothing was rounded, or a logit is no number.
    """
    if rounded is None:
        return math.inf
    end = exact[-len(rounded) :]
    largest = np.abs(end).max(axis=1)
    share = float((np.abs(end - rounded).max(axis=1) / np.where(largest > 0, largest, 1)).max())
    return math.inf if math.isnan(share) else share


@dataclass(frozen=True, eq=False)
class Plan:
    """All that the process of the reference is given.

    Attributes:
        path: folder of the model, or a GGUF file.
        questions: what is wanted.
        parts: quantised matrices, which replace those of the files.
    """

    path: Path
    questions: Questions
    parts: tuple[StoredPart, ...]


def write_plan(directory: Path, path: Path, questions: Questions, quantised: Iterable[QuantisedPart]) -> None:
    """Write what the process of the reference is given, a matrix at a time.

    Raises:
        OSError: the folder cannot be written.
    """
    parts: list[dict[str, Any]] = []
    with (directory / _WEIGHTS).open("wb") as stream:
        for part in quantised:
            arrays = []
            order = () if part.order is None else (part.order,)
            for array in (*part.values.arrays, *order):
                arrays.append({"dtype": array.dtype.str, "shape": array.shape, "begin": stream.tell()})
                array.tofile(stream)
            entry = {"matrix": asdict(part.matrix), "form": asdict(part.values.form), "arrays": arrays}
            parts.append({**entry, "ordered": bool(order)})
    asked = {
        **{name: one for name, one in vars(questions).items() if name not in ("texts", "text")},
        "texts": [tokens.tolist() for tokens in questions.texts],
        "text": None if questions.text is None else questions.text.tolist(),
    }
    plan = {"folder": str(path.resolve()), "parts": parts, "questions": asked}
    (directory / _PLAN).write_text(json.dumps(plan))


def read_plan(directory: Path) -> Plan:
    """Read what `write_plan` wrote."""
    plan = json.loads((directory / _PLAN).read_text())
    asked = plan["questions"]
    asked["texts"] = tuple(np.array(tokens, np.int32) for tokens in asked["texts"])
    asked["text"] = None if asked["text"] is None else np.array(asked["text"], np.int32)
    asked["rounded"] = tuple(tuple(one) for one in asked["rounded"])
    asked["measured"] = tuple(asked["measured"])
    return Plan(
        Path(plan["folder"]), Questions(**asked), tuple(_part(directory, one) for one in plan["parts"])
    )


def _part(directory: Path, entry: dict[str, Any]) -> StoredPart:
    arrays = [
        StoredArray(directory / _WEIGHTS, np.dtype(one["dtype"]), tuple(one["shape"]), one["begin"])
        for one in entry["arrays"]
    ]
    places = arrays.pop() if entry["ordered"] else None
    return StoredPart(Matrix(**entry["matrix"]), Form(**entry["form"]), tuple(arrays), places)


def write_answers(directory: Path, answers: Answers) -> None:
    """Write the outputs of the reference process.

    Raises:
        OSError: the folder cannot be written.
    """
    arrays = {str(number): one for number, one in enumerate(answers.logits)}
    others = {"text": answers.text, "original": answers.original, "rounded": answers.rounded}
    others["attended"] = answers.attended
    arrays |= {name: one for name, one in others.items() if one is not None}
    arrays |= {"greedy": np.array(answers.greedy, np.int32), "half_spread": np.array(answers.half_spread)}
    arrays |= {"chosen": np.array(answers.chosen), "kept_spread": np.array(answers.kept_spread)}
    arrays |= {_MEASURED + name: one for name, one in answers.measured.items()}
    np.savez(directory / _ANSWERS, **arrays)  # type: ignore[arg-type]


def read_answers(directory: Path, texts: int) -> Answers:
    """Read the outputs that the reference process wrote for a number of texts."""
    with np.load(directory / _ANSWERS) as arrays:
        return Answers(
            tuple(np.asarray(arrays[str(number)]) for number in range(texts)),
            np.asarray(arrays["text"]) if "text" in arrays else None,
            np.asarray(arrays["original"]) if "original" in arrays else None,
            tuple(arrays["greedy"].tolist()),
            np.asarray(arrays["rounded"]) if "rounded" in arrays else None,
            float(arrays["half_spread"]),
            {
                name.removeprefix(_MEASURED): np.asarray(arrays[name])
                for name in arrays.files
                if name.startswith(_MEASURED)
            },
            np.asarray(arrays["attended"]) if "attended" in arrays else None,
            int(arrays["chosen"]),
            float(arrays["kept_spread"]),
        )
