"""What is kept comes back, and the best of it is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent.contract.text import is_printable
from host.errors import EdgeError
from host.model import Candidate, Energy, Measurement
from host.records import ForeignRecord, Record, RecordOrigin, RecordStore
from host.records.database import BATCH
from host.records.record import line_of, record_of
from tests.unit.records.samples import failure, profile, record, same


@pytest.fixture
def store(place: str | Path) -> Iterator[RecordStore]:
    with RecordStore(place) as opened:
        yield opened


VERSION = record(1.0).candidate.space_version


def medians(records: Any) -> list[float]:
    return [one.measurement.median_s for one in records]


def of_version(milliseconds: float, version: int) -> Record:
    made = record(milliseconds)
    return replace(made, candidate=replace(made.candidate, space_version=version))


def test_records_come_back_as_they_were(store: RecordStore) -> None:
    written = [record(3.0), record(2.0, tile=8)]
    assert store.append(written) == 2
    read = list(store)
    assert len(read) == 2
    assert all(same(a, b) for a, b in zip(read, written, strict=True))


def test_a_record_is_kept_once(store: RecordStore) -> None:
    first, second = record(3.0), record(3.0)
    assert store.append([first, first]) == 1
    assert store.append([first, second]) == 1, "measured again is another record"
    assert len(list(store)) == 2


def test_all_are_added_or_none(store: RecordStore) -> None:
    no_json = replace(record(1.0), origin=RecordOrigin(foreign={"seed": object()}))
    with pytest.raises(EdgeError, match="a record of task task cannot be written as JSON"):
        store.append([record(2.0), no_json])
    assert list(store) == []


def test_the_best_is_the_fastest_on_the_same_profile(store: RecordStore) -> None:
    store.append([record(3.0), record(2.0, tile=8), record(1.0, tile=16, threads=2)])
    best = store.best("task", profile())
    assert best is not None
    assert best.candidate.value("rows") == (8, 8)
    assert store.best("task", profile(threads=4)) is None
    assert store.best("other", profile()) is None
    assert medians(store.history("task", profile())) == [0.003, 0.002]


def test_older_programs_of_several_threads_are_not_of_the_profile(store: RecordStore) -> None:
    """Records of one thread stay: their programs have not changed."""
    older = {name: value for name, value in profile(threads=2).items() if name != "shared_programs"}
    store.append([record(3.0), replace(record(1.0, threads=2), profile=older), record(2.0, threads=2)])
    assert medians(store.select(profile())) == [0.003]
    assert medians(store.select(profile(threads=2))) == [0.002]
    assert "shared_programs" not in profile()


def test_the_first_of_programs_that_are_as_fast_is_the_best(store: RecordStore) -> None:
    """Less than 2% is noise, and a program of another rule cannot be made."""
    store.append([record(2.0), record(1.015, tile=8), record(1.0, tile=16)])
    best = store.best("task", profile(), {"matmul": VERSION})
    assert best is not None and best.candidate.value("rows") == (8, 8)
    assert store.best("task", profile(), {"another rule": VERSION}) is None


def test_who_calls_the_device_what_does_not_matter() -> None:
    assert profile(device="desk") == profile(device="shelf")
    assert profile(threads=1) != profile(threads=2)


def test_a_record_of_another_version_of_its_rule_is_no_answer(store: RecordStore) -> None:
    store.append([of_version(1.0, VERSION - 1)])
    assert store.best("task", profile(), {"matmul": VERSION}) is None
    assert len(list(store)) == 1


def test_a_new_version_of_a_rule_keeps_the_records_of_others(store: RecordStore) -> None:
    other = record(2.0, task="elsewhere")
    store.append([record(1.0), replace(other, candidate=replace(other.candidate, rule="softmax"))])
    changed = {"matmul": VERSION + 1, "softmax": VERSION}
    assert medians(store.select(versions=changed)) == [0.002]
    assert store.best("task", profile(), changed) is None
    assert store.best("elsewhere", profile(), changed) is not None


def test_records_are_selected_by_profile_and_version(store: RecordStore) -> None:
    store.append([of_version(1.0, 0), record(2.0), record(3.0, threads=2)])
    assert medians(store.select()) == [0.001, 0.002, 0.003]
    assert medians(store.select(profile=profile())) == [0.001, 0.002]
    assert medians(store.select(versions={"matmul": 0})) == [0.001]
    assert medians(store.select(profile(threads=2), {"matmul": VERSION})) == [0.003]


def test_more_records_than_a_batch_come_in_order_while_others_are_added(store: RecordStore) -> None:
    count = 2 * BATCH + 3
    store.append(record(1.0 + number) for number in range(count))
    seen = []
    for one in store:
        seen.append(one.measurement.median_s)
        if len(seen) == 1:
            store.append([record(0.5)])
    assert seen == pytest.approx([1e-3 * (1 + number) for number in range(count)] + [0.5e-3])


def test_what_failed_is_remembered_and_never_the_best(store: RecordStore) -> None:
    store.append([failure(), record(2.0, tile=8)])
    assert [one.failure for one in store.history("task", profile(), failed=True)] == ["no registers left"]
    assert medians(store.history("task", profile())) == [0.002]
    assert medians(store.select()) == [0.002]
    assert [one.failure for one in store.select(failed=True)] == ["no registers left", ""]
    best = store.best("task", profile())
    assert best is not None and best.candidate.value("rows") == (8, 8)


def test_the_program_is_the_same_whoever_proposed_it() -> None:
    assert record(1.0).candidate_key == record(2.0, proposer="tlm").candidate_key
    assert record(1.0).candidate_key != record(1.0, tile=2).candidate_key


def test_summaries_count_by_task_profile_and_version(store: RecordStore) -> None:
    store.append([record(3.0), record(2.0, tile=8), failure(), of_version(1.0, 0), record(5.0, threads=2)])
    store.append([replace(failure(), candidate=replace(failure().candidate, workload_hash="hopeless"))])
    found = {
        (one.workload_hash, one.space_version, one.best.profile["threads"]): one for one in store.summaries()
    }
    assert len(found) == 4
    here = found["task", VERSION, 1]
    assert (here.measured, here.failed, here.best.measurement.median_s) == (2, 1, 0.002)
    assert found["task", 0, 1].measured == 1
    assert found["task", VERSION, 2].best.measurement.median_s == 0.005
    hopeless = found["hopeless", VERSION, 1]
    assert (hopeless.measured, hopeless.failed, hopeless.best.failure) == (0, 1, "no registers left")


def test_programs_of_others_are_kept_apart(store: RecordStore) -> None:
    foreign = [
        ForeignRecord("task", "function", f"trace {number}", 1e-6 * number if number else None)
        for number in range(BATCH + 2)
    ]
    assert store.append_foreign(foreign) == BATCH + 2
    assert store.append_foreign(foreign[:3]) == 0
    assert list(store.foreign()) == foreign
    assert store.best("task", profile()) is None
    assert list(store) == []
    (summary,) = store.foreign_summaries()
    assert (summary.workload_hash, summary.measured, summary.failed) == ("task", BATCH + 1, 1)
    assert summary.best_s == pytest.approx(1e-6)


texts = st.text(max_size=12)
names = st.text("abc_ .é(", min_size=1, max_size=12).filter(is_printable)
seconds = st.floats(min_value=1e-9, max_value=3600.0)
whole = st.integers(-(1 << 62), 1 << 62)
plain = st.dictionaries(
    texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts, max_size=3), max_size=3
)
candidates = st.builds(
    Candidate,
    workload_hash=st.text("0123456789abcdef", min_size=1, max_size=64),
    rule=names,
    decisions=st.lists(st.tuples(names, whole | st.lists(whole, max_size=4).map(tuple)), max_size=5).map(
        tuple
    ),
    proposer=names,
    estimate_s=st.just(float("nan")) | seconds,
    space_version=st.integers(0, 99),
)
energies = st.builds(Energy, texts, st.none() | seconds, st.none() | seconds, texts, texts)
measurements = st.builds(
    Measurement,
    st.lists(seconds, min_size=1, max_size=9).map(tuple),
    energies,
    plain,
    plain,
    st.integers(1, 64),
)
measured = st.builds(Record, candidates, plain, measurements, origin=plain.map(RecordOrigin.read))
failed = st.builds(
    Record.failed,
    candidates,
    st.just({"threads": 2}),
    st.text(min_size=1, max_size=12),
    plain.map(RecordOrigin.read),
)


@given(measured | failed)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_every_record_is_one_line_and_comes_back_from_it(one: Record) -> None:
    line = line_of(one)
    assert "\n" not in line
    again = record_of(line)
    assert same(again, one)
    assert again.record_key == one.record_key
    assert line_of(again) == line
