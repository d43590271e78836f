"""Plans among the records: each that was measured as a whole model, and the one that was taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.model import Candidate, DeviceProfile, Measurement
from host.plans.plan import PLAN_RULE, PLAN_VERSION, ModelPlan
from host.records import Record, RecordOrigin, RecordStore
from host.records.store import profile_data

if TYPE_CHECKING:
    from host.plans.proposers import Proposed
    from host.statistics import Estimate

# Of a measurement's conditions.
_CONDITION = "plan"
# A trace is for people; records bound texts.
_TRACE_CHARACTERS = 4000


@dataclass(frozen=True)
class PlanTrial:
    """A plan that was measured as a whole model beside others.

    Attributes:
        proposed: the plan with its estimate.
        measurement: of the whole model.
        ratio: its time over that of the plan that stood before, with bounds; None for that plan itself.
        taken: whether it was chosen.
    """

    proposed: Proposed
    measurement: Measurement
    ratio: Estimate | None
    taken: bool


def remember(
    records: str | Path,
    subject: str,
    profile: DeviceProfile,
    trials: Iterable[PlanTrial],
    origin: RecordOrigin,
) -> None:
    """Add the plans of one comparison to the records.

    Args:
        records: the store.
        subject: of the model (`host.plans.plan.subject_of`).
        profile: of the device that measured.
        trials: the plans; one of them is the one that was taken.
        origin: what asked for it.

    Raises:
        EdgeError: the store refuses.
    """
    data = profile_data(profile)
    found = [
        Record(
            Candidate(
                subject,
                PLAN_RULE,
                one.proposed.plan.decisions,
                one.proposed.proposer,
                one.proposed.estimate.total_s,
                one.proposed.plan.version,
            ),
            data,
            replace(
                one.measurement,
                conditions={**one.measurement.conditions, _CONDITION: _conditions(one)},
            ),
            origin=origin,
        )
        for one in trials
    ]
    with RecordStore(records) as store:
        store.append(found)


def _conditions(trial: PlanTrial) -> dict[str, Any]:
    ratio = trial.ratio
    bounds = None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return {"taken": trial.taken, "ratio": bounds, "trace": trial.proposed.trace[:_TRACE_CHARACTERS]}


def remembered(records: str | Path, subject: str, profile: DeviceProfile) -> ModelPlan | None:
    """The plan that the last comparison on such a device took; None without one.

    Args:
        records: the store; a file that is not there has none.
        subject: of the model.
        profile: of the device.

    Raises:
        EdgeError: the store refuses.
    """
    if isinstance(records, Path) and not records.is_file():
        return None
    with RecordStore(records) as store:
        history = store.history(subject, profile_data(profile))
    for record in reversed(history):
        candidate = record.candidate
        if (candidate.rule, candidate.space_version) != (PLAN_RULE, PLAN_VERSION):
            continue
        if _was_taken(record.measurement.conditions):
            decisions = tuple((name, value) for name, value in candidate.decisions if isinstance(value, int))
            return ModelPlan(decisions) if len(decisions) == len(candidate.decisions) else None
    return None


def _was_taken(conditions: Mapping[str, Any]) -> bool:
    found = conditions.get(_CONDITION)
    return isinstance(found, dict) and found.get("taken") is True
