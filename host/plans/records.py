"""Plans among the records: each that was measured as a whole model, and the one that was taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.model import Candidate, DeviceProfile, Measurement
from host.plans.plan import PLAN_RULE, PLAN_VERSION, ModelPlan
from host.records import Record, RecordOrigin, profile_data
from host.records.place import is_there

if TYPE_CHECKING:
    from host.plans.proposers import Proposed
    from host.statistics import Estimate

# Of a measurement's conditions.
_CONDITION = "plan"
# A trace is for people; records bound texts.
_TRACE_CHARACTERS = 4000
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PlanTrial:
    """A plan that was measured as a whole model beside others.

    Attributes:
        proposed: the plan with its estimate.
        measurement: of the whole model.
        ratio: its figure over that of the plan that stood before, with bounds; None for that plan itself.
        taken: whether it was chosen.
        objective: what the figure is and the choice was by: "latency", "energy" or "edp".
    """

    proposed: Proposed
    measurement: Measurement
    ratio: Estimate | None
    taken: bool
    objective: str = "latency"


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
    from host.records import RecordStore

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
    return {
        "objective": trial.objective,
        "taken": trial.taken,
        "ratio": bounds,
        "trace": trial.proposed.trace[:_TRACE_CHARACTERS],
    }


def remembered(
    records: str | Path, subject: str, profile: DeviceProfile, objective: str = "latency"
) -> ModelPlan | None:
    """The plan that the latest comparison on such a device took; None without one.

    A record may be of another host. So a plan that departs from the passes counts only where its record shows
    that it was better, on a device that was not slowed down.

    Args:
        records: the store; a file that is not there has none.
        subject: of the model.
        profile: of the device.
        objective: "latency", "energy" or "edp": other comparisons do not count.

    Raises:
        EdgeError: the store refuses.
    """
    if not is_there(records):
        return None
    from host.records import RecordStore

    with RecordStore(records) as store:
        history = store.history(subject, profile_data(profile))
    taken = [record for record in history if _was_taken(record, objective)]
    if not taken:
        return None
    # Imported records come later than they were made.
    latest = max(taken, key=lambda record: _made_at(record) or _NEVER)
    return ModelPlan(
        tuple((name, value) for name, value in latest.candidate.decisions if isinstance(value, int))
    )


def _was_taken(record: Record, objective: str) -> bool:
    candidate, measurement = record.candidate, record.measurement
    if (candidate.rule, candidate.space_version) != (PLAN_RULE, PLAN_VERSION) or _made_at(record) is None:
        return False
    found = measurement.conditions.get(_CONDITION)
    if not isinstance(found, dict) or found.get("taken") is not True or found.get("objective") != objective:
        return False
    if not candidate.decisions:
        return True
    whole = all(type(value) is int for _, value in candidate.decisions)
    return whole and measurement.trusted and _is_better(found.get("ratio"))


def _is_better(ratio: object) -> bool:
    """Whether the bounds of a record show a figure below that of the plan that stood before."""
    bounds = [ratio.get(name) for name in ("low", "value", "high")] if isinstance(ratio, dict) else []
    # No `bool`; JSON has no NaN.
    numbers = [one for one in bounds if isinstance(one, float) or type(one) is int]
    return len(numbers) == 3 and 0.0 < numbers[0] <= numbers[1] <= numbers[2] < 1.0


def _made_at(record: Record) -> datetime | None:
    """When a record was made; None where its text is no date."""
    try:
        made = datetime.fromisoformat(record.made_at)
    except ValueError:
        return None
    return made if made.tzinfo else made.replace(tzinfo=UTC)
