"""What the measurements of each board have taught its estimate."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.learned_estimate.evidence import Evidence
    from host.learned_estimate.observation import Observation
    from host.records import Record, RecordStore


@dataclass(frozen=True)
class TaughtRule:
    """What the programs of one rule have taught on one board.

    Attributes:
        board: its name.
        threads: of the programs.
        models: that the programs were measured for.
        evidence: what follows for kernels that were not measured.
    """

    board: str
    threads: int
    models: int
    evidence: Evidence


def what_was_taught(store: RecordStore, device: dict[str, object] | None = None) -> list[TaughtRule]:
    """What the records of each board teach, the rules with most programs first.

    Args:
        store: of the records.
        device: profile of the only device to look at, without threads; None for all.

    Raises:
        EdgeError: the records cannot be read.
    """
    from host.learned_estimate.estimate import LearnedEstimate
    from host.learned_estimate.evidence import evidence_of
    from host.learned_estimate.observation import observations_of
    from host.schedules.families import rule_versions
    from sdk.management.records import without_threads

    versions = rule_versions()
    by_profile: dict[str, list[Record]] = defaultdict(list)
    for record in store:
        present = versions.get(record.candidate.rule) == record.candidate.space_version
        if present and device in (None, without_threads(record.profile)):
            by_profile[record.profile_key].append(record)
    found = []
    for records in by_profile.values():
        observations = observations_of(records)
        profile = records[0].profile
        for rule, process in LearnedEstimate(observations).processes.items():
            models = _models(observations, rule)
            found.append(TaughtRule(str(profile["board"]), profile["threads"], models, evidence_of(process)))
    return sorted(found, key=lambda one: (one.board, one.threads, -one.evidence.programs))


def _models(observations: list[Observation], rule: str) -> int:
    return len({one.model for one in observations if one.rule == rule})
