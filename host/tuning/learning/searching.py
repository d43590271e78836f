"""What a search by the learned estimate finds for a board's tasks, for the language model to learn.

Measured programs are few, and mostly those that the estimate of the rule put first. Where the measurements
have taught a learned estimate that convinces, a search by it finds programs that nobody measured; a model
that learns them writes such programs for other tasks at once (`host.tlm.training.expert_iteration`). A
training that is judged by withheld tasks gets neither their programs, or those of their parts, nor what
their times have taught; and its searches begin with programs of a model that has not seen these tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from host.errors import TlmError
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.evidence import convincing_rules, evidence_for
from host.learned_estimate.observation import observations_of
from host.learned_estimate.search import best_found
from host.records import Record
from host.schedules.design import DesignSpace
from host.tlm.language.vocabulary import DECIDE, Vocabulary
from host.tlm.training import gate
from host.tlm.training.example import Example
from host.tlm.training.expert_iteration import Rounds, apart, lessons_by_search, prompt_of
from host.tlm.training.finetune import WHOLE, fold_name, judged_at

_ROUNDS = Rounds(count=1)


def lessons_of_board(
    records: Sequence[Record],
    examples: Sequence[Example],
    spaces: Sequence[DesignSpace],
    model: Path,
    seed: int,
    seconds: float = 0.0,
) -> dict[str, list[Example]]:
    """Programs to learn that nobody measured, by the name of each training of a fine-tuning.

    None of a rule whose learned estimate does not convince (`host.learned_estimate.evidence`).

    Args:
        records: everything measured on the board.
        examples: the same as it is learned.
        spaces: of tasks to search.
        model: folder of the model in use.
        seed: of what is drawn.
        seconds: for all searches together; what does not fit is left out. 0 for no limit.

    Raises:
        TlmError: the checkpoint is damaged.
    """
    estimate = LearnedEstimate(observations_of(records))
    rules = convincing_rules(evidence_for(estimate))
    vocabulary = Vocabulary()
    tasks: dict[str, DesignSpace] = {}
    # The numbers of the folds in which a task is withheld, or one that it is a part of.
    judging: dict[str, set[int]] = defaultdict(set)
    for whole in spaces:
        of_whole = _described(whole, vocabulary)
        for space in apart([whole]):
            example = _described(space, vocabulary)
            if example is None or space.rule.name not in rules:
                continue
            task = gate.task_of(example)
            tasks.setdefault(task, space)
            judging[task] |= {gate.fold_of(one) for one in (example, of_whole) if one is not None}
    if not tasks:
        return {}
    of_records = [(_task_of_record(one, vocabulary), one) for one in records]
    folds = gate.folds(examples)
    share = seconds / (1 + len(folds))
    found = {WHOLE: _found(estimate, list(tasks.values()), model, seed, share)}
    for fold in folds:
        withheld = {gate.task_of(one) for one in fold.withheld}
        # A record that does not say its task may be of a withheld one.
        known = [one for task, one in of_records if task and task not in withheld]
        own = [space for task, space in tasks.items() if fold.number not in judging[task]]
        taught = LearnedEstimate(observations_of(known))
        found[fold_name(fold.number)] = _found(taught, own, judged_at(model, fold), seed, share)
    return found


def _found(
    estimate: LearnedEstimate, spaces: Sequence[DesignSpace], model: Path, seed: int, seconds: float
) -> list[Example]:
    return lessons_by_search(model, _ROUNDS, spaces, partial(best_found, estimate), seed, seconds)


def _described(space: DesignSpace, vocabulary: Vocabulary) -> Example | None:
    """A task without programs; None where the language cannot express it."""
    try:
        return Example(0, prompt_of(space, vocabulary))
    except TlmError:
        return None


def _task_of_record(record: Record, vocabulary: Vocabulary) -> str:
    """The digest of a record's task; "" where the record does not say it."""
    words = record.origin.sentence or ()
    if DECIDE not in words:
        return ""
    try:
        return gate.task_of(Example(0, tuple(vocabulary.encode(words[: words.index(DECIDE) + 1]))))
    except TlmError:
        return ""
