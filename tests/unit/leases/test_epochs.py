"""Epochs of boards: kept and ended in one transaction each, and records of one that ended are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from host.errors import EdgeError
from host.model.reference_times import ReferenceTimes
from host.records import Record, RecordOrigin, RecordStore
from host.records.choice import best_program
from host.records.database import DRIFTS, EPOCHS, Database
from host.records.epochs import BoardEpochs, Epoch, EpochDamaged, drifted_boards, present_epoch
from host.records.record import DRIFTED, invalidated, line_of, record_of, why_untrusted
from sdk.cli.main import main
from tests.unit.records.samples import failure, profile, record

TIMES = ReferenceTimes("0" * 64, {"kernel": "6.1"}, {"stream": (1e-3, 1.1e-3, 1.2e-3)})
RULE = ("matmul", 4)


def of_epoch(one: Record, epoch: Epoch) -> Record:
    return replace(one, origin=RecordOrigin.read({"epoch": epoch.key}))


def test_a_board_has_the_epoch_that_began_last(place: str | Path) -> None:
    with BoardEpochs(place) as epochs:
        assert epochs.present("board") is None
        first = epochs.begin("board", "pi5", TIMES)
        assert (first.board, first.name, first.times, first.drift) == ("board", "pi5", TIMES, None)
        assert epochs.begin("another", "pi6", TIMES).key != first.key
        second = epochs.begin("board", "pi five", TIMES)
        assert epochs.present("board") == second
        assert second.began_at >= first.began_at > 1.7e9


def test_an_epoch_ends_once_with_the_first_reason(place: str | Path) -> None:
    with BoardEpochs(place) as epochs:
        epoch = epochs.begin("board", "pi5", TIMES)
        epochs.end(epoch.key, "stream takes 8% longer", "anna@desk")
        epochs.end(epoch.key, "another reason", "ben@desk")
        found = epochs.present("board")
        assert found is not None and found.drift is not None
        assert (found.drift.reason, found.drift.found_by) == ("stream takes 8% longer", "anna@desk")
        with epochs._database.reading() as connection:
            assert drifted_boards(connection) == {"board": "stream takes 8% longer"}
        epochs.begin("board", "pi5", TIMES)
        with epochs._database.reading() as connection:
            assert drifted_boards(connection) == {}


def test_an_epoch_that_is_not_there_cannot_end_in_a_shared_store(shared: str) -> None:
    with BoardEpochs(shared) as epochs, pytest.raises(EdgeError):
        epochs.end("f" * 32, "reason", "anna@desk")


def test_records_of_an_epoch_that_ended_are_left_out_and_kept(place: str | Path) -> None:
    with BoardEpochs(place) as epochs, RecordStore(place) as store:
        old, other = epochs.begin("board", "pi5", TIMES), epochs.begin("another", "pi6", TIMES)
        fast, slow, unknown = record(1.0, tile=8), record(2.0, tile=16), record(3.0)
        failed = failure()
        added = [of_epoch(fast, old), of_epoch(slow, other), unknown, of_epoch(failed, old)]
        assert store.append(added) == 4
        assert _best(store) == 1e-3
        assert epochs.records_of(old.key) == 2
        epochs.end(old.key, "stream takes 8% longer", "anna@desk")
        assert _best(store) == 2e-3
        assert [one.median_s for one in store.history("task", profile())] == [2e-3, 3e-3]
        assert [one.median_s for one in store.select(profile())] == [2e-3, 3e-3]
        # That a program does not build has nothing to do with how fast the board is.
        assert len(store.history("task", profile(), failed=True)) == 1
        (summary,) = store.summaries()
        assert (summary.measured, summary.failed, summary.drifted, summary.throttled) == (2, 1, 1, 0)
        assert summary.best.median_s == 2e-3
        # All of them are there, and those of the epoch say why nothing goes by them.
        every = list(store)
        assert [one.measurement.invalid for one in every] == [DRIFTED, "", "", ""]
        assert [one.median_s for one in every] == [None, 2e-3, 3e-3, None]
        assert every[0].measurement.times_s == fast.measurement.times_s
        assert why_untrusted(every[0]) == "of a board that has drifted since"
        assert best_program([every[0]]) is None
        # A new epoch brings no old record back.
        again = epochs.begin("board", "pi5", TIMES)
        assert _best(store) == 2e-3
        store.append([of_epoch(record(0.5, tile=8), again)])
        assert _best(store) == 0.5e-3


def _best(store: RecordStore) -> float | None:
    """By both ways of asking, which have to agree."""
    one = store.best("task", profile(), dict([RULE]))
    several = store.best_of({"task": RULE}, profile())
    assert one is not None and several["task"].median_s == one.median_s
    return one.median_s


def test_the_mark_goes_with_a_record_to_another_store(tmp_path: Path, place: str | Path) -> None:
    with BoardEpochs(place) as epochs, RecordStore(place) as store:
        epoch = epochs.begin("board", "pi5", TIMES)
        store.append([of_epoch(record(1.0, tile=8), epoch), record(2.0)])
        epochs.end(epoch.key, "stream takes 8% longer", "anna@desk")
        assert store.export(tmp_path / "r.jsonl") == 2
    with RecordStore(tmp_path / "other.sqlite") as other:
        assert other.load(tmp_path / "r.jsonl") == 2
        assert [one.median_s for one in other.select(profile())] == [2e-3]
        (summary,) = other.summaries()
        assert (summary.measured, summary.failed, summary.drifted) == (1, 0, 1)
    with RecordStore(place) as store:
        assert store.load(tmp_path / "r.jsonl") == 0


def test_a_mark_that_comes_later_counts_for_what_was_taken_before(tmp_path: Path, place: str | Path) -> None:
    """Its own store marks the board after records were taken; a file of before changes nothing."""
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    with BoardEpochs(tmp_path / "theirs.sqlite") as epochs, RecordStore(tmp_path / "theirs.sqlite") as theirs:
        epoch = epochs.begin("board", "pi5", TIMES)
        theirs.append([of_epoch(record(1.0, tile=8), epoch), record(2.0)])
        theirs.export(before)
        epochs.end(epoch.key, "stream takes 8% longer", "anna@desk")
        theirs.export(after)
    with RecordStore(place) as store:
        assert store.load(before) == 2 and _best(store) == 1e-3
        for path in (after, before, after):
            assert store.load(path) == 0 and _best(store) == 2e-3
        assert [one.median_s for one in store.select(profile())] == [2e-3]


def test_nobody_elsewhere_marks_a_board_that_is_known_here(tmp_path: Path, place: str | Path) -> None:
    with BoardEpochs(place) as epochs, RecordStore(place) as store:
        mine = of_epoch(record(1.0, tile=8), epochs.begin("board", "pi5", TIMES))
        store.append([mine])
        with RecordStore(tmp_path / "theirs.sqlite") as theirs:
            theirs.append([invalidated(mine)])
            theirs.export(tmp_path / "r.jsonl")
        assert store.load(tmp_path / "r.jsonl") == 0
        present = epochs.present("board")
        assert present is not None and present.drift is None and _best(store) == 1e-3


def test_what_does_not_fit_the_schema_of_an_epoch_is_foreign_to_a_record() -> None:
    for odd in ("", "x" * 32, "0" * 31, 5, None, ["0" * 32]):
        origin = RecordOrigin.read({"epoch": odd})
        assert origin.epoch is None and origin.foreign == {"epoch": odd}
    kept = replace(record(1.0), origin=RecordOrigin.read({"epoch": "a" * 32}))
    assert record_of(line_of(kept)).origin.epoch == "a" * 32


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"programs": "x"}', "\x1b[31m"])
def test_an_epoch_of_a_stranger_is_read_by_strict_rules(place: str | Path, content: str) -> None:
    with BoardEpochs(place) as epochs:
        epochs.begin("board", "pi5", TIMES)
        with epochs._database.writing() as connection:
            connection.execute(sql.update(EPOCHS).values(content=content, name="\x1b[31mpi5\n"))
        with pytest.raises(EpochDamaged, match=r"begin another with sdk watch .*--accept") as caught:
            epochs.present("board")
        assert str(caught.value).isprintable()


def test_texts_of_a_stranger_are_shown_as_what_they_are(place: str | Path) -> None:
    with BoardEpochs(place) as epochs:
        epoch = epochs.begin("board", "pi5", TIMES)
        epochs.end(epoch.key, "reason", "anna@desk")
        with epochs._database.writing() as connection:
            connection.execute(sql.update(DRIFTS).values(reason="\x1b[2J\n", found_by="\u202enna"))
        found = epochs.present("board")
        assert found is not None and found.drift is not None
        assert found.drift.reason.isprintable() and found.drift.found_by.isprintable()
        with epochs._database.reading() as connection:
            assert all(text.isprintable() for text in drifted_boards(connection).values())


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert present_epoch(tmp_path / "none.sqlite", "board") is None
    assert not (tmp_path / "none.sqlite").exists()


def test_a_reader_sees_an_epoch_and_begins_none(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with BoardEpochs(path) as epochs:
        epochs.begin("board", "pi5", TIMES)
    with BoardEpochs(f"sqlite:///file:{path}?mode=ro&uri=true") as epochs:
        found = epochs.present("board")
        assert found is not None
        with pytest.raises(EdgeError, match="it may only be read"):
            epochs.end(found.key, "reason", "anna@desk")
    assert present_epoch(path, "board") == found


def test_the_list_counts_programs_of_boards_that_drifted_among_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.sqlite"
    with BoardEpochs(path) as epochs, RecordStore(path) as store:
        epoch = epochs.begin("board", "pi5", TIMES)
        store.append([of_epoch(record(1.0, tile=8), epoch), record(2.0)])
        epochs.end(epoch.key, "reason", "anna@desk")
    assert main(["records", "list", "--records", str(path), "-o", "csv"]) == 0
    names, row = (line.split(",") for line in capsys.readouterr().out.splitlines())
    shown = dict(zip(names, row, strict=True))
    assert (shown["measured"], shown["failed"], shown["drifted"]) == ("1", "0", "1")


def test_the_store_is_of_the_present_schema(place: str | Path) -> None:
    database = Database(place)
    with database.reading() as connection:
        assert {"board_epochs", "board_drifts"} <= set(sql.inspect(connection).get_table_names())
    database.engine.dispose()
