"""Measured records as sentences to learn from: what a task's programs are, and how long each takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from device_agent.contract.limits import LIMITS
from host.errors import TlmError
from host.model import Candidate
from host.records import Record
from host.records.record import why_untrusted
from host.tlm.language.vocabulary import BOARD, DECIDE, Vocabulary, spell_decisions
from host.tlm.model.card import Size
from host.tlm.training.example import Example

if TYPE_CHECKING:
    from host.schedules.design import DesignSpace

_LONGEST = Size().positions
# Of the parts of an estimate; `host.schedules.design.TOTAL`, which needs the compiler.
_TOTAL = "total"


def examples_of(
    records: Iterable[Record],
    spaces: Mapping[str, DesignSpace],
    vocabulary: Vocabulary,
    skipped: Counter[str] | None = None,
) -> list[Example]:
    """Measured programs of tasks whose design spaces are given.

    Args:
        records: of any tasks; those without a space are skipped.
        spaces: by the task's workload hash.
        vocabulary: of the language model.
        skipped: counts, by reason, the records that are of no use.

    Returns:
        An example for each task and profile, its programs fastest first.
    """
    # Not at the top: reading sentences out of records does not need the compiler.
    from host.tlm.language.description import describe_board, describe_task
    from host.tlm.language.sentence import encode_prompt

    prompts: dict[str, tuple[int, ...]] = {}

    def prompt_of(record: Record) -> tuple[int, ...]:
        key = record.candidate.workload_hash
        space = spaces.get(key)
        if space is None or space.rule.name != record.candidate.rule:
            raise _UnusableRecord("of a task or rule without a design space")
        if key not in prompts:
            words = encode_prompt(describe_board(space.hardware, space.threads), describe_task(space))
            prompts[key] = _known(words, vocabulary)
        return prompts[key]

    return _gathered(records, prompt_of, vocabulary, skipped)


def examples_of_records(
    records: Iterable[Record], vocabulary: Vocabulary, skipped: Counter[str] | None = None
) -> list[Example]:
    """Measured programs of tasks that the records themselves describe; see `examples_of`."""

    def prompt_of(record: Record) -> tuple[int, ...]:
        words = record.origin.sentence
        if not words:
            raise _UnusableRecord("without a sentence")
        if words[0] != BOARD:
            raise _UnusableRecord("with a damaged sentence")
        return _known(words, vocabulary)

    return _gathered(records, prompt_of, vocabulary, skipped)


class _UnusableRecord(Exception):
    """A record cannot be learned from; the message completes "records ..."."""


def _known(words: Sequence[str], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Token numbers up to and without the quality."""
    if DECIDE not in words:
        raise _UnusableRecord("with a damaged sentence")
    return tuple(vocabulary.encode(words[: words.index(DECIDE) + 1]))


def _gathered(
    records: Iterable[Record],
    prompt_of: Callable[[Record], tuple[int, ...]],
    vocabulary: Vocabulary,
    skipped: Counter[str] | None,
) -> list[Example]:
    prompts: dict[tuple[str, str], tuple[int, ...]] = {}
    times: dict[tuple[str, str], dict[tuple[int, ...], float]] = {}
    estimates: dict[tuple[str, str], dict[tuple[int, ...], float]] = {}
    # Not at the top: see `examples_of`.
    from host.schedules.families import rule_versions

    versions = rule_versions()
    for record in records:
        try:
            if record.candidate.space_version != versions.get(record.candidate.rule):
                raise _UnusableRecord("of another version of their rule")
            decided, seconds = _program(record.candidate, vocabulary), _seconds(record)
            prompt = prompt_of(record)
            if len(prompt) + 1 + len(decided) > _LONGEST:
                raise _UnusableRecord("whose sentence is too long")
        except (_UnusableRecord, TlmError) as error:
            if skipped is not None:
                skipped[str(error) if isinstance(error, _UnusableRecord) else "outside of the language"] += 1
            continue
        key = (record.candidate.workload_hash, record.profile_key)
        # The last one: a later calibration changes the description of the board, not the programs.
        prompts[key] = prompt
        programs = times.setdefault(key, {})
        programs[decided] = min(seconds, programs.get(decided, math.inf))
        estimates.setdefault(key, {})[decided] = _estimate(record)
    return [
        _example(number, prompts[key], programs, estimates[key])
        for number, (key, programs) in enumerate(times.items())
    ]


def _program(candidate: Candidate, vocabulary: Vocabulary) -> tuple[int, ...]:
    decisions: list[tuple[str, int]] = []
    for name, value in candidate.decisions:
        if isinstance(value, tuple):
            raise _UnusableRecord("of another kind of program")
        decisions.append((name, value))
    if not decisions:
        raise _UnusableRecord("of a program without decisions")
    return tuple(vocabulary.encode(spell_decisions(decisions)))


def _seconds(record: Record) -> float:
    if record.measurement.times_s and not record.measurement.trusted:
        raise _UnusableRecord(why_untrusted(record))
    if record.failure or record.median_s is None:
        raise _UnusableRecord("that failed")
    if not math.isfinite(record.median_s) or record.median_s <= 0.0:
        raise _UnusableRecord("without a time")
    return record.median_s


def _estimate(record: Record) -> float:
    """Estimated seconds of a record's program; NaN where it says none that a program can take."""
    parts = record.origin.estimate_parts_s
    seconds = record.candidate.estimate_s if parts is None else parts.get(_TOTAL, math.nan)
    return seconds if LIMITS.records.shortest_s <= seconds <= LIMITS.records.longest_s else math.nan


def _example(
    number: int,
    prompt: tuple[int, ...],
    programs: Mapping[tuple[int, ...], float],
    estimates: Mapping[tuple[int, ...], float],
) -> Example:
    best = min(programs.values())
    ranked = sorted(programs, key=lambda decided: (programs[decided], decided))
    known = tuple(estimates[decided] for decided in ranked)
    return Example(
        number,
        prompt,
        tuple((decided, round(programs[decided] / best, 4)) for decided in ranked),
        estimates=() if any(map(math.isnan, known)) else known,
    )
