"""What the measurements of each board have taught its estimate."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.learned_estimate.evidence import Evidence
    from host.records import Record, RecordStore


@dataclass(frozen=True)
class TaughtRule:
    """What the programs of one rule have taught on one board.

    Attributes:
        board: its name.
        threads: of the programs.
        evidence: what follows for kernels that were not measured.
        pulled: programs, of all these, whose records came in packs of other hosts.
    """

    board: str
    threads: int
    evidence: Evidence
    pulled: int = 0


def taught_rules(store: RecordStore, device: dict[str, object] | None = None) -> list[TaughtRule]:
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
    from host.records.record import of_one_kind
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
        pulled = Counter(
            one.rule for one in observations_of(one for one in of_one_kind(records) if one.origin.pack)
        )
        board, threads = str(records[0].profile["board"]), records[0].profile["threads"]
        for rule, process in LearnedEstimate(observations).processes.items():
            found.append(TaughtRule(board, threads, evidence_of(process), pulled[rule]))
    return sorted(found, key=lambda one: (one.board, one.threads, -one.evidence.programs))
