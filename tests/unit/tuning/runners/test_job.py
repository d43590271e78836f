"""The queue of jobs: whatever is done to a job, it is in one place and each program has one outcome."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from host.tuning.runners.job import Job, JobQueue, JobState
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import candidate, dense_space, measured

TASK = TuningTask(dense_space(), 1e-5)


@settings(deadline=None)
@given(st.data())
def test_a_job_is_in_one_place_whatever_is_done_to_it(data: st.DataObject) -> None:
    queue = JobQueue()
    time_left, ever_late = True, False
    programs = [
        Program(
            TASK, candidate(TASK.key, number, "gensor"), None if number % 4 == 3 else Path(f"{number}.so")
        )
        for number in range(8)
    ]
    share = data.draw(st.integers(1, 3))
    built = [one for one in programs if one.built is not None]
    jobs = [built[begin : begin + share] for begin in range(0, len(built), share)]
    jobs += [[one] for one in programs if one.built is None]
    queue.put(data.draw(st.permutations(jobs)), lambda: time_left)

    def outcomes_of(job: Job, seconds: float, least: int) -> list[Outcome]:
        """Outcomes of some of the job's programs: of all where there is one, else of `least` at least."""
        known = [one for one in job.programs if data.draw(st.booleans())]
        if len(known) < (least if len(job.programs) > 1 else 1):
            known = list(job.programs)
        return [Outcome(one, measured(seconds), "", job.board) for one in known]

    seen: list[Job] = []
    taken: dict[str, Job] = {}
    outcomes: list[Outcome] = []
    with queue.changed:
        for _ in range(data.draw(st.integers(0, 40))):
            board = data.draw(st.sampled_from("abc"))
            action = data.draw(st.sampled_from(["take", "finish", "stale", "fault", "busy", "pop", "late"]))
            if action == "take" and board not in taken:
                job = queue.take(board, alone=data.draw(st.booleans()))
                if job is not None:
                    assert job.state is JobState.RUNNING and job not in taken.values()
                    taken[board] = job
                    seen.append(job)
            elif action == "finish" and board in taken:
                job = taken.pop(board)
                assert queue.finish(job, board, outcomes_of(job, 1.0, 0))
            elif action == "stale" and seen:
                job = data.draw(st.sampled_from(seen))
                if taken.get(board) is not job:
                    assert not queue.finish(job, board, outcomes_of(job, 2.0, 1))
            elif action in ("fault", "busy") and board in taken:
                queue.give_back(taken.pop(board), at_fault=action == "fault")
            elif action == "pop":
                outcome = queue.pop_outcome()
                outcomes += [outcome] if outcome else []
            elif action == "late":
                time_left = data.draw(st.booleans())
                ever_late = ever_late or not time_left
        for board, job in taken.items():
            assert queue.finish(job, board, outcomes_of(job, 1.0, 0))
        while (job := queue.take("d", alone=True)) is not None:
            seen.append(job)
            assert queue.finish(job, "d", outcomes_of(job, 1.0, 0))
        while (outcome := queue.pop_outcome()) is not None:
            outcomes.append(outcome)
        assert queue.empty
    known = Counter(id(one.program) for one in outcomes)
    assert set(known.values()) <= {1}, "an answer counts once"
    assert all(job.state in (JobState.DONE, JobState.DROPPED) for job in seen)
    if not ever_late:
        assert len(known) == len(programs), "none is lost"
