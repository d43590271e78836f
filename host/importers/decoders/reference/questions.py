"""What a reference is asked, what it answers, and the files that carry both between two processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from host.importers.decoders.description import Matrix
from host.importers.decoders.quantise import Form, QuantisedPart
from host.importers.decoders.reference.judgement import Asked, Judgement, Part
from host.importers.decoders.reference.stored import StoredArray, StoredPart

_PLAN, _WEIGHTS, _ANSWERS = "plan.json", "weights.bin", "answers.npz"
_MEASURED, _JUDGED = "measured/", "judged/"
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
        halves: whether the matrices are rounded to half precision, as the compiled model's are.
        measured: weights of products, by their names in the files: the mean squares of their inputs over all
            of `texts` are wanted, and nothing else.
        cached: whether keys and values are rounded to bytes, as the compiled model keeps them; not for the
            logits by the weights in the files.
        judged: what may be rounded, of which is asked how far it moves logits; None without.
    """

    texts: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    prompt: int = 0
    count: int = 0
    halves: bool = False
    measured: tuple[str, ...] = ()
    cached: bool = False
    judged: Asked | None = None


@dataclass(frozen=True, eq=False)
class Answers:
    """The references that transformers computed.

    Attributes:
        logits: (n, V) float32 of each of `texts`, by the quantised or rounded weights.
        text: (n, V) of `text` by the same weights; None without.
        original: (n, V) of `text` by the weights in the files; None without, or where these are quantised.
        greedy: tokens that continue the prompt, by the same weights.
        half_spread: how far rounding to halves moves logits behind the last text, as a share of the largest.
        measured: (K) float32 by the names that were asked for; without the table of an embedding that is no
            head, which multiplies nothing.
        judgement: what was found about what may be rounded; None where that was not asked for.
    """

    logits: tuple[np.ndarray, ...]
    text: np.ndarray | None = None
    original: np.ndarray | None = None
    greedy: tuple[int, ...] = ()
    half_spread: float = 0.0
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    judgement: Judgement | None = None


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
        **{name: one for name, one in vars(questions).items() if name not in ("texts", "text", "judged")},
        "texts": [tokens.tolist() for tokens in questions.texts],
        "text": None if questions.text is None else questions.text.tolist(),
        "judged": None if questions.judged is None else _written(questions.judged),
    }
    plan = {"folder": str(path.resolve()), "parts": parts, "questions": asked}
    (directory / _PLAN).write_text(json.dumps(plan))


def read_plan(directory: Path) -> Plan:
    """Read what `write_plan` wrote."""
    plan = json.loads((directory / _PLAN).read_text())
    asked = plan["questions"]
    asked["texts"] = tuple(np.array(tokens, np.int32) for tokens in asked["texts"])
    asked["text"] = None if asked["text"] is None else np.array(asked["text"], np.int32)
    asked["measured"] = tuple(asked["measured"])
    if asked["judged"] is not None:
        asked["judged"] = _asked(asked["judged"])
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
    others = {"text": answers.text, "original": answers.original}
    arrays |= {name: one for name, one in others.items() if one is not None}
    arrays |= {"greedy": np.array(answers.greedy, np.int32), "half_spread": np.array(answers.half_spread)}
    if answers.judgement is not None:
        arrays |= {_JUDGED + name: np.array(one) for name, one in vars(answers.judgement).items()}
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
            float(arrays["half_spread"]),
            {
                name.removeprefix(_MEASURED): np.asarray(arrays[name])
                for name in arrays.files
                if name.startswith(_MEASURED)
            },
            _judgement(arrays) if _JUDGED + "rounded" in arrays else None,
        )


def _written(asked: Asked) -> dict[str, Any]:
    return {**vars(asked), "texts": asked.texts.tolist(), "parts": [asdict(one) for one in asked.parts]}


def _asked(entry: dict[str, Any]) -> Asked:
    parts = tuple(Part(**{**one, "products": tuple(one["products"])}) for one in entry["parts"])
    return Asked(**{**entry, "texts": np.array(entry["texts"], np.int32), "parts": parts})


def _judgement(arrays: Mapping[str, np.ndarray]) -> Judgement:
    rounded, alone = (tuple(arrays[_JUDGED + name].tolist()) for name in ("rounded", "alone"))
    together, left = (float(arrays[_JUDGED + name]) for name in ("all", "left"))
    return Judgement(rounded, together, left, alone)
