"""Whether a fine-tuned model is better than the one in use, on records that it did not learn from.

The error of a model on a task is a sum of two figures, for which only the order of the programs matters. One
that has seen more programs like these, and nothing of which are fast, is no better:

- contrast: loss of the fastest measured program less the mean loss of all of them, mean over their tokens,
  natural logarithm, when quality 0 is asked for;
- misordered: share of the pairs of measured programs, one at least 5% slower than the other, of which the
  slower one is the likelier.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from host.errors import TlmError
from host.tlm.language.vocabulary import PAD, Vocabulary, quality_token
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.training.example import Example
from host.tlm.training.packing import Sample
from host.tlm.training.trainer import log_probabilities

# One task in so many is withheld; where that are fewer than so many tasks, one program in so many.
_TASK_EACH, _MIN_TASKS, _PROGRAM_EACH = 5, 3, 3
# Two programs whose times are closer than this may be in either order.
_NOISE = 1.05
_BATCH = 32
_MAX_PROGRAMS = 64


@dataclass(frozen=True)
class Verdict:
    """Two models on withheld programs.

    Attributes:
        before, after: mean error over the tasks, of the model in use and of the new one; smaller is better.
        accepted: whether the new one is better by more than the standard error of the difference.
    """

    before: float
    after: float
    accepted: bool


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """What is learned from and what is withheld; more records change nothing for those that were there.

    Whole tasks are withheld, where there are enough of them; else programs of every task. Tasks that read
    the same stay together.

    Raises:
        TlmError: too little was measured to withhold anything.
    """
    withheld = [example for example in examples if len(example.programs) > 1 and _chosen(example)]
    if len({example.prompt for example in withheld}) >= _MIN_TASKS:
        kept = {example.prompt for example in withheld}
        return [example for example in examples if example.prompt not in kept], withheld
    parts = [_split_programs(example) for example in examples]
    learned = [example for example, _ in parts if example.programs]
    withheld = [example for _, example in parts if len(example.programs) > 1]
    if not learned or not withheld:
        count = sum(len(example.programs) for example in examples)
        raise TlmError(
            f"{count} measured programs of {len(examples)} tasks are too few to fine-tune on; measure more"
        )
    return learned, withheld


def task_errors(model: LanguageModel, vocabulary: Vocabulary, withheld: Sequence[Example]) -> list[float]:
    """The error on each task, of at most 64 programs evenly spaced from the fastest to the slowest."""
    withheld = [_thinned(example) for example in withheld]
    best = vocabulary.number(quality_token(0))
    samples = [
        Sample((*example.prompt, best), decided) for example in withheld for decided, _ in example.programs
    ]
    found = iter(log_probabilities(model, samples, vocabulary.number(PAD), _BATCH))
    errors = []
    for example in withheld:
        logs = [next(found) for _ in example.programs]
        fastest = min(range(len(logs)), key=lambda number: example.programs[number][1])
        losses = [-log / len(decided) for log, (decided, _) in zip(logs, example.programs, strict=True)]
        contrast = losses[fastest] - statistics.fmean(losses)
        errors.append(contrast + _misordered(logs, [slower for _, slower in example.programs]))
    return errors


def mean_loss(model: LanguageModel, vocabulary: Vocabulary, samples: Sequence[Sample]) -> float:
    """Mean over the tokens of each program and then over the programs, natural logarithm."""
    if not samples:
        return 0.0
    found = log_probabilities(model, samples, vocabulary.number(PAD), _BATCH)
    return statistics.fmean(-log / len(sample.target) for log, sample in zip(found, samples, strict=True))


def compare(before: Sequence[float], after: Sequence[float]) -> Verdict:
    """The verdict on the errors of two models on the same tasks."""
    gains = [old - new for old, new in zip(before, after, strict=True)]
    gain = statistics.fmean(gains)
    noise = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return Verdict(statistics.fmean(before), statistics.fmean(after), gain > noise)


def _thinned(example: Example) -> Example:
    count = len(example.programs)
    if count <= _MAX_PROGRAMS:
        return example
    chosen = (number * (count - 1) // (_MAX_PROGRAMS - 1) for number in range(_MAX_PROGRAMS))
    return replace(example, programs=tuple(example.programs[number] for number in chosen))


def _misordered(logs: Sequence[float], slower: Sequence[float]) -> float:
    pairs = wrong = 0
    for one, log in enumerate(logs):
        for other, other_log in enumerate(logs):
            if slower[other] > _NOISE * slower[one]:
                pairs += 1
                wrong += other_log >= log
    return wrong / pairs if pairs else 0.0


def _split_programs(example: Example) -> tuple[Example, Example]:
    """Programs to learn and programs withheld; each part's times are relative to the task's best."""
    taken = [_number((*example.prompt, *decided)) % _PROGRAM_EACH == 0 for decided, _ in example.programs]
    parts = [
        tuple(program for program, out in zip(example.programs, taken, strict=True) if out is wanted)
        for wanted in (False, True)
    ]
    return replace(example, programs=parts[0]), replace(example, programs=parts[1])


def _chosen(example: Example) -> bool:
    return _number(example.prompt) % _TASK_EACH == 0


def _number(tokens: Sequence[int]) -> int:
    return int.from_bytes(hashlib.sha256(repr(tuple(tokens)).encode()).digest()[:6], "big")
