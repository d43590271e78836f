"""Whether a fine-tuned model is better than the one in use, on records that it did not learn from.

Judged is what a deployment does with a model: it draws programs, ranks them by estimate, likelihood and
variety (`host.tlm.ranking`), and takes the first one, or measures the first ten. Nothing is measured for it.
The programs that a model draws are the recorded ones of a withheld task, each with the probability that the
model gives it among them; the likeliest is always drawn. The recorded time of what is then chosen says how
good the model is. Both models draw with the same random numbers.

A deployment (`host.tlm.proposer`) draws different programs from the whole space. As many different ones of
the recorded programs would often be all of them, whatever the model. So these draws are with replacement;
they become bolder from the first to the last of a round, and bolder rounds follow until ten different
programs are drawn. The probability of a program at the temperature t is that of the whole program to the
power of 1 / t, made to add up to one over the recorded programs.

The new model has to be faster than the one in use, which a bound has to show, and faster than chance on
average: draws by which every recorded program is equally likely, ranked in the same way. What chance reaches
too was not learned. No bound is asked for there: recorded programs were mostly chosen by their estimates, so
that chance among them is far better than chance in the whole space.

Each task judges once (`folds`): for each third of the tasks, a model learns the other two thirds. The verdict
is about training on such records, and not about one set of weights; the model that is used learns all tasks.

What a model would write that nobody has measured does not count, so a model whose best programs are all new
is judged by its others.
"""

from __future__ import annotations

import hashlib
import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from host.errors import TlmError
from host.statistics import MIN_TRIALS, Estimate, mean_of, one_sided_bound
from host.tlm.language.vocabulary import PAD, TASK, Vocabulary, quality_token
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.proposer import BATCH, ROUNDS, boldness
from host.tlm.ranking import Ranking, ScoredProgram, ranked
from host.tlm.training.example import Example
from host.tlm.training.packing import Sample
from host.tlm.training.trainer import log_probabilities

# Models that are judged, each by the tasks that it has not seen.
FOLDS = 3
_TASK = Vocabulary().number(TASK)
# What the bound has to be above. A model that draws more different programs gains up to one per cent in the
# best of ten whatever it has learned, from shuffled times too: less than that shows nothing.
LEAST_GAIN = 1.01
_BATCH = 32
_MAX_PROGRAMS = 64
# Temperature of the last draw of a round over that of the first.
_BOLDEST = 2.0
# Programs that a deployment measures, and how often its draws are repeated.
_MEASURED, _REPEATED = 10, 16


@dataclass(frozen=True)
class Chosen:
    """The time of what a model chooses for a task over that of the fastest recorded program.

    Attributes:
        first: of the first program, a geometric mean over draws.
        best: of the fastest of the first ten, the same.
    """

    first: float
    best: float


@dataclass(frozen=True)
class Fold:
    """A part of the tasks that one model has not seen.

    Attributes:
        number: of the part.
        learned: what the model learns from.
        withheld: what judges it.
    """

    number: int
    learned: tuple[Example, ...]
    withheld: tuple[Example, ...]


@dataclass(frozen=True)
class Verdict:
    """Two models on withheld programs.

    Attributes:
        before, after: mean over the tasks of the logarithm of `Chosen.first`, of the model in use and of the
            new one; 0 is the fastest recorded program.
        first, best: speed of the new model over that of the one in use: first programs, and best of ten.
        bound: what the geometric mean of both speeds is at least, one-sided 95%; None with too few tasks.
        over_chance: the geometric mean of both speeds over chance; None where two models alone are compared.
        chance_bound: what that is at least, one-sided 95%; None without chance or with too few tasks.
    """

    before: float
    after: float
    first: Estimate
    best: Estimate
    bound: float | None
    over_chance: float | None = None
    chance_bound: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the new model is used."""
        return accepts(self.bound, self.over_chance)

    @property
    def why(self) -> str:
        """One line with the figures."""
        what = (
            f"on {self.first.n} withheld tasks first programs are {self.first.value:.3f} times as fast, "
            f"best of {_MEASURED} {self.best.value:.3f}"
        )
        if self.bound is None:
            return f"{what}: too few tasks for a bound"
        chance = "" if self.over_chance is None else f"; {self.over_chance:.3f} of chance, 1 is needed"
        return f"{what}; both together at least {self.bound:.3f}, {LEAST_GAIN} is needed{chance}"


# How a bound comes about: bounds of different designs are not compared. The version changes with what the
# other figures do not say; 2 since the fold of a task follows from the task alone, 3 since programs are drawn
# as boldly as in a deployment, and chance is compared.
DESIGN = {
    "version": 3,
    "folds": FOLDS,
    "programs": _MAX_PROGRAMS,
    "drawn": BATCH,
    "rounds": ROUNDS,
    "measured": _MEASURED,
    "repeated": _REPEATED,
}


def accepts(bound: float | None, over_chance: float | None = None) -> bool:
    """Whether a model whose gain has this bound, and which is so much faster than chance, is used."""
    return bound is not None and bound > LEAST_GAIN and (over_chance is None or over_chance > 1.0)


def folds(examples: Sequence[Example]) -> list[Fold]:
    """What is learned from and what is withheld, a part at a time: each task is withheld from one model.

    More records change nothing for those that were there, nor does another description of the board, as after
    a calibration. Tasks that read the same stay together. A part without tasks is left out.

    Raises:
        TlmError: too little was measured to withhold anything.
    """
    found = _folds(examples)
    if not _suffice(found):
        count = sum(len(example.programs) for example in examples)
        raise TlmError(
            f"{count} measured programs of {len(examples)} tasks are too few to fine-tune on; measure those "
            "of more tasks"
        )
    return found


def judgeable(examples: Sequence[Example]) -> bool:
    """Whether there are tasks enough for a verdict."""
    return _suffice(_folds(examples))


def _suffice(parts: Sequence[Fold]) -> bool:
    return len({task_of(example) for fold in parts for example in fold.withheld}) >= MIN_TRIALS


def _folds(examples: Sequence[Example]) -> list[Fold]:
    judging = [example for example in examples if len(example.programs) > 1]
    found = []
    for number in range(FOLDS):
        withheld = [example for example in judging if fold_of(example) == number]
        kept = {task_of(example) for example in withheld}
        learned = [example for example in examples if task_of(example) not in kept]
        if withheld and learned:
            found.append(Fold(number, tuple(learned), tuple(withheld)))
    return found


def fold_of(example: Example) -> int:
    """The number of the part with which a task is withheld."""
    return _number(_structure(example)) % FOLDS


def task_of(example: Example) -> str:
    """A digest of a task, whatever the board and its calibration."""
    return f"{_number(_structure(example)):012x}"


def _structure(example: Example) -> tuple[int, ...]:
    """The part of a prompt that describes the task."""
    prompt = example.prompt
    return prompt[prompt.index(_TASK) :] if _TASK in prompt else prompt


def choices_of(model: LanguageModel, vocabulary: Vocabulary, withheld: Sequence[Example]) -> list[Chosen]:
    """What a deployment would choose for each task, of at most 64 programs evenly spaced by their time."""
    withheld = [thinned(example) for example in withheld]
    found = likelihoods(model, vocabulary, withheld)
    return [chosen_of(example, logs, vocabulary) for example, logs in zip(withheld, found, strict=True)]


def likelihoods(
    model: LanguageModel, vocabulary: Vocabulary, withheld: Sequence[Example]
) -> list[list[float]]:
    """The log-probabilities that a model gives to the programs of each task."""
    best = vocabulary.number(quality_token(0))
    samples = [
        Sample((*example.prompt, best), decided) for example in withheld for decided, _ in example.programs
    ]
    found = iter(log_probabilities(model, samples, vocabulary.number(PAD), _BATCH))
    return [[next(found) for _ in example.programs] for example in withheld]


def mean_loss(model: LanguageModel, vocabulary: Vocabulary, samples: Sequence[Sample]) -> float:
    """Mean over the tokens of each program and then over the programs, natural logarithm."""
    if not samples:
        return 0.0
    found = log_probabilities(model, samples, vocabulary.number(PAD), _BATCH)
    return statistics.fmean(-log / len(sample.target) for log, sample in zip(found, samples, strict=True))


def by_chance(withheld: Sequence[Example], vocabulary: Vocabulary) -> list[Chosen]:
    """What is chosen for each task if all its programs are equally likely to be drawn."""
    return [chosen_of(one, [0.0] * len(one.programs), vocabulary) for one in map(thinned, withheld)]


def compare(before: Sequence[Chosen], after: Sequence[Chosen], chance: Sequence[Chosen] = ()) -> Verdict:
    """The verdict on what two models choose for the same tasks, and on what chance does if it is given."""
    over = _both(chance, after) if chance else None
    return Verdict(
        statistics.fmean(math.log(one.first) for one in before),
        statistics.fmean(math.log(one.first) for one in after),
        mean_of([old.first / new.first for old, new in zip(before, after, strict=True)]),
        mean_of([old.best / new.best for old, new in zip(before, after, strict=True)]),
        one_sided_bound(_both(before, after)),
        None if over is None else over.value,
        None if over is None else one_sided_bound(over),
    )


def _both(before: Sequence[Chosen], after: Sequence[Chosen]) -> Estimate:
    """The geometric mean of the speeds of first programs and of the best of ten."""
    speeds = [
        math.sqrt(old.first * old.best / (new.first * new.best))
        for old, new in zip(before, after, strict=True)
    ]
    return mean_of(speeds)


def chosen_of(example: Example, logs: Sequence[float], vocabulary: Vocabulary) -> Chosen:
    """What a deployment would choose among the programs of a task that have these log-probabilities."""
    slower = [slow for _, slow in example.programs]
    fastest = min(slower)
    firsts, bests = [], []
    for order in orders_of(example, logs, vocabulary):
        times = [slower[place] / fastest for place in order]
        firsts.append(math.log(times[0]))
        bests.append(math.log(min(times)))
    return Chosen(math.exp(statistics.fmean(firsts)), math.exp(statistics.fmean(bests)))


def orders_of(example: Example, logs: Sequence[float], vocabulary: Vocabulary) -> list[list[int]]:
    """The places of the programs that a deployment would measure, in their order, for each repeated draw."""
    estimates = example.estimates or (math.nan,) * len(logs)
    programs = [
        ScoredProgram(_values(decided, vocabulary), log, seconds)
        for (decided, _), log, seconds in zip(example.programs, logs, estimates, strict=True)
    ]
    number = {id(one): place for place, one in enumerate(programs)}
    rounds = [[_shares(logs, temperature) for temperature in _temperatures(turn)] for turn in range(ROUNDS)]
    generator = random.Random(_number(example.prompt))
    # Programs are in the order of their times: the first of equally likely ones would be the fastest.
    likeliest = [place for place, log in enumerate(logs) if log == max(logs)]
    found = []
    for _ in range(_REPEATED):
        drawn = _drawn(generator.choice(likeliest), rounds, generator)
        order = ranked([programs[one] for one in sorted(drawn)], Ranking(), _MEASURED)
        found.append([number[id(one)] for one in order])
    return found


def _temperatures(turn: int) -> list[float]:
    """Of the draws of a round; the first program of a round is the likeliest, and is not drawn."""
    steps = ((_BOLDEST - 1.0) * place / (BATCH - 1) for place in range(1, BATCH))
    return [boldness(turn) * (1.0 + step) for step in steps]


def _shares(logs: Sequence[float], temperature: float) -> list[float]:
    """Sums of the probabilities up to each program, up to a factor."""
    highest = max(logs)
    return list(accumulate(math.exp((log - highest) / temperature) for log in logs))


def _drawn(likeliest: int, rounds: Sequence[Sequence[Sequence[float]]], generator: random.Random) -> set[int]:
    """The programs that are drawn: rounds until there are enough different ones, or one brings none."""
    found = {likeliest}
    for turn, draws in enumerate(rounds):
        known = len(found)
        found |= {
            min(bisect_left(shares, generator.random() * shares[-1]), len(shares) - 1) for shares in draws
        }
        if len(found) >= _MEASURED or (turn and len(found) == known):
            break
    return found


def _values(decided: Sequence[int], vocabulary: Vocabulary) -> tuple[int, ...]:
    """A number for each decision of a program, equal for equal values."""
    groups: list[list[int]] = []
    for token, word in zip(decided, vocabulary.decode(decided), strict=True):
        if word.endswith("="):
            groups.append([])
        elif groups:
            groups[-1].append(token)
    return tuple(_number(group) for group in groups)


def thinned(example: Example) -> Example:
    """A task with at most 64 of its programs, evenly spaced by their time."""
    count = len(example.programs)
    if count <= _MAX_PROGRAMS:
        return example
    chosen = [number * (count - 1) // (_MAX_PROGRAMS - 1) for number in range(_MAX_PROGRAMS)]
    return replace(
        example,
        programs=tuple(example.programs[number] for number in chosen),
        estimates=tuple(example.estimates[number] for number in chosen) if example.estimates else (),
    )


def _number(tokens: Sequence[int]) -> int:
    return int.from_bytes(hashlib.sha256(repr(tuple(tokens)).encode()).digest()[:6], "big")
