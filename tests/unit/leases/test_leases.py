"""Who has which board: one at a time, in line, by the clock of the database, no longer than it lives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql

from device_agent.contract.text import is_printable
from host.errors import DeviceBusy, EdgeError, LeaseLost, UserError
from host.leases import LEASE_S, RENEW_S, Heartbeats, Lease, LeaseTable, Request, leased
from host.model.reference_times import ReferenceTimes
from host.records.database import LEASES, QUEUE
from host.records.epochs import BoardEpochs
from sdk.cli.main import main
from tests.servers.postgres import Server

RACER = """
import sys, time
from pathlib import Path
from host.leases import LeaseTable, Request
place, folder, name, rounds = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
won = []
with LeaseTable(place) as table:
    for number in range(rounds):
        (folder / f"{name} {number}").touch()
        until = time.monotonic() + 60
        while not all((folder / f"{one} {number}").exists() for one in "ab"):
            assert time.monotonic() < until, "the other ended"
        holder = table.take(Request(f"board {number}", "pi5", f"{name}@desk", "tune", f"{name}{number}"))
        if holder is None:
            won.append(number)
print(*won)
"""

HOLDER = """
import sys, time
from host.leases import LeaseTable, Request, leased
table = LeaseTable(sys.argv[1])
request = Request("board", "pi5", "anna@desk", "tune mobilenet", "a")
lease = leased(table, request)
lease.close()
from host.leases import Heartbeats, Lease
assert table.take(request) is None
Lease(table, request, heartbeats=Heartbeats(table, 0.1))
print("mine", flush=True)
time.sleep(300)
"""


def wanted(owner: str = "anna", board: str = "board", name: str = "pi5", job: str = "tune net") -> Request:
    return Request(board, name, f"{owner}@desk", job, f"ticket of {owner} for {board}")


def after(table: LeaseTable, seconds: float) -> None:
    """Put everything that is known of leases so many seconds into the past."""
    with table._database.writing() as connection:
        for kept, names in ((LEASES, ("since", "renewed", "until")), (QUEUE, ("since", "until"))):
            connection.execute(sql.update(kept).values({name: kept.c[name] - seconds for name in names}))


@pytest.fixture
def table(place: str | Path) -> Iterator[LeaseTable]:
    with LeaseTable(place) as opened:
        yield opened


def test_a_crashed_holder_is_noticed_within_a_minute() -> None:
    assert RENEW_S < LEASE_S / 2
    assert LEASE_S + RENEW_S <= 60


def test_one_has_a_board_and_the_others_stand_in_line(table: LeaseTable) -> None:
    assert table.take(wanted("anna")) is None
    for owner in ("ben", "carl"):
        holder = table.take(wanted(owner))
        assert holder is not None and holder.owner == "anna@desk"
    (status,) = table.status()
    assert (status.name, status.job, status.health) == ("pi5", "tune net", "held")
    assert [one.owner for one in status.waiting] == ["ben@desk", "carl@desk"]
    assert 0 < status.left_s <= LEASE_S
    table.release(wanted("anna"))
    # Carl is second, whoever asks first.
    assert table.take(wanted("carl")) is not None
    assert table.take(wanted("dora")) is not None
    assert table.take(wanted("ben")) is None
    assert table.take(wanted("ben")) is None, "it has the board already"
    table.release(wanted("carl"))
    table.release(wanted("ben"))
    assert table.take(wanted("dora")) is None
    assert table.status()[0].waiting == ()


def test_boards_do_not_wait_for_each_other(table: LeaseTable) -> None:
    assert table.take(wanted("anna", "one")) is None
    assert table.take(wanted("ben", "other", "jetson")) is None
    assert [(one.name, one.owner) for one in table.status()] == [("jetson", "ben@desk"), ("pi5", "anna@desk")]


def test_whoever_is_not_heard_of_loses_board_and_place(table: LeaseTable) -> None:
    assert table.take(wanted("anna")) is None
    assert table.take(wanted("ben")) is not None
    after(table, LEASE_S)
    assert table.status()[0].health == "lost"
    assert table.take(wanted("carl")) is None, "Ben went away from the line"
    assert not table.renew([wanted("anna")])
    assert table.renew([wanted("carl")])
    assert "not heard of" in table.why_lost(wanted("anna")) and "carl@desk" in table.why_lost(wanted("anna"))


def test_the_time_of_day_of_a_host_decides_nothing(
    table: LeaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.take(wanted("anna")) is None
    for wrong in (0.0, 4e9):
        monkeypatch.setattr("time.time", lambda wrong=wrong: wrong)
        assert table.take(wanted("ben")) is not None
        assert table.renew([wanted("anna")])
        (status,) = table.status()
        assert status.health == "held" and 0 < status.left_s <= LEASE_S


def test_a_board_is_released_by_force_and_it_is_kept_who_did(table: LeaseTable) -> None:
    assert table.take(wanted("anna")) is None
    was = table.release_by_force("pi5", "ben@desk")
    assert was.owner == "anna@desk"
    assert not table.renew([wanted("anna")])
    assert table.why_lost(wanted("anna")) == "ben@desk released it by force"
    table.release(wanted("anna"))
    assert table.take(wanted("carl")) is None
    with pytest.raises(UserError, match="nobody has a board nothing: sdk fleet status lists them"):
        table.release_by_force("nothing", "ben@desk")
    assert table.take(wanted("dora", "another board", "pi5")) is None
    with pytest.raises(UserError, match="several boards are called pi5: say which: "):
        table.release_by_force("pi5", "ben@desk")
    assert table.release_by_force("another board", "ben@desk").owner == "dora@desk"


@pytest.mark.parametrize("rounds", [50])
def test_of_two_that_take_a_board_at_once_one_has_it(place: str | Path, tmp_path: Path, rounds: int) -> None:
    with LeaseTable(place):
        pass
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(place), str(tmp_path), name, str(rounds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    won = []
    for process in processes:
        out, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        won.append([int(word) for word in out.split()])
    assert sorted(won[0] + won[1]) == list(range(rounds))


def test_the_board_of_a_holder_that_is_killed_is_free_again(place: str | Path, table: LeaseTable) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "mine\n"
        # Longer than a lease: its heart beats.
        for _ in range(3):
            after(table, LEASE_S / 2)
            until = time.monotonic() + 60
            while table.status()[0].left_s < 0.75 * LEASE_S and time.monotonic() < until:
                time.sleep(0.02)
            assert table.take(wanted("ben")) is not None
        process.kill()
    after(table, LEASE_S)
    with leased(table, wanted("ben")) as lease:
        lease.check()


# -- the lease of a process


def test_whoever_waits_is_told_who_has_it_and_gets_it(table: LeaseTable) -> None:
    notes: list[str] = []
    mine = leased(table, wanted("anna"))
    with pytest.raises(
        DeviceBusy, match=r"pi5: anna@desk has had it for \d+ s \(tune net\); wait for it with --wait 10m"
    ):
        leased(table, wanted("ben"))
    assert table.status()[0].waiting == (), "whoever gave up does not stand in line"
    threading.Timer(0.5, mine.close).start()
    with leased(table, wanted("ben"), 60.0, notes.append):
        assert [one.owner for one in table.status()] == ["ben@desk"]
    (note,) = notes
    assert re.fullmatch(r"pi5: anna@desk has had it for \d+ s \(tune net\); waiting for it", note)
    assert table.status()[0].health == "free"


def test_whoever_is_interrupted_leaves_the_line(table: LeaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with leased(table, wanted("anna")):
        monkeypatch.setattr("host.leases.lease.time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            leased(table, wanted("ben"), 60.0)
        assert table.status()[0].waiting == ()


def test_a_holder_is_told_that_its_board_was_taken(table: LeaseTable) -> None:
    told = threading.Event()
    assert table.take(wanted("anna")) is None
    lease = Lease(table, wanted("anna"), lambda reason: told.set(), Heartbeats(table, 0.05))
    lease.check()
    table.release_by_force("pi5", "ben@desk")
    assert told.wait(60)
    with pytest.raises(
        LeaseLost, match="pi5: its lease is lost, ben@desk released it by force; run the same"
    ):
        lease.check()
    assert table.take(wanted("carl")) is None
    lease.close()
    assert table.status()[0].owner == "carl@desk", "it gives back nothing that is another's"


def test_one_statement_renews_all_boards_of_a_command_and_no_other(
    table: LeaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [wanted("anna", f"board {number}") for number in range(50)]
    others = wanted("ben", "board x")
    for request in (*mine, others):
        assert table.take(request) is None
    table.release_by_force("board 7", "ben@desk")
    before = {one.board: one.left_s for one in table.status()}
    time.sleep(0.05)
    statements: list[str] = []
    listening = (table._database.engine, "before_cursor_execute")
    sql.event.listen(*listening, lambda *given: statements.append(given[2]))
    kept = table.renew([*mine, wanted("carl", "board x")])
    assert kept == {one.ticket for one in mine if one.board != "board 7"}
    assert sum("UPDATE" in one for one in statements) == 1
    after = {one.board: one.left_s for one in table.status()}
    assert all((after[one.board] > before[one.board]) == (one.board != "board 7") for one in mine)
    assert after["board x"] < before["board x"]


def test_a_lost_board_leaves_the_heartbeats_of_the_others(table: LeaseTable) -> None:
    told: list[str] = []
    gone = threading.Event()
    with Heartbeats(table, 0.05) as heartbeats:
        leases = []
        for name in "ab":
            request = wanted("anna", name, name)
            assert table.take(request) is None
            leases.append(Lease(table, request, lambda reason: (told.append(reason), gone.set()), heartbeats))
        table.release_by_force("a", "ben@desk")
        assert gone.wait(60)
        until = time.monotonic() + 60
        while (held := table.status()[1]).heartbeat_s > 0.2 and time.monotonic() < until:
            time.sleep(0.02)
        assert held.health == "held" and told == ["ben@desk released it by force"]
        for lease in leases:
            lease.close()
        assert [one.owner for one in table.status()] == ["", ""]


def test_a_database_that_restarts_takes_no_board_from_anybody(server: Server, shared: str) -> None:
    lost: list[str] = []
    with LeaseTable(shared, patience_s=0.2) as table:
        assert table.take(wanted("anna")) is None
        lease = Lease(table, wanted("anna"), lost.append, Heartbeats(table, 0.05))
        server.kill()
        with pytest.raises(EdgeError, match="does not answer"):
            table.status()
        server.start()
        with LeaseTable(shared) as other:
            before = other.status()[0].heartbeat_s
            until = time.monotonic() + 60
            while other.status()[0].heartbeat_s >= before and time.monotonic() < until:
                time.sleep(0.05)
            assert other.take(wanted("ben")) is not None
        lease.check()
        assert not lost
        lease.close()


# -- what people see


def test_the_status_and_a_release_by_hand(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    records = ["--records", shared]
    assert main(["fleet", "status", *records]) == 0
    assert capsys.readouterr().out == "no board was leased yet\n"
    with LeaseTable(shared) as table:
        table.take(wanted("anna"))
        table.take(wanted("ben", job="deploy net"))
    assert main(["fleet", "status", *records, "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["owner"], row["health"]) == ("pi5", "anna@desk", "held")
    assert (row["waiting"], row["queue"]) == (1, "ben@desk (deploy net)")
    assert 0 < row["left_s"] <= LEASE_S
    for form in ("table", "csv", "md"):
        assert main(["fleet", "status", *records, "-o", form]) == 0
        out = capsys.readouterr().out
        assert "anna@desk" in out and "ben@desk (deploy net)" in out
    assert main(["fleet", "release", "pi5", *records]) == 2
    assert "ends the work of its holder: ask there, and add --force" in capsys.readouterr().err
    assert main(["fleet", "release", "pi5", "--force", *records]) == 0
    assert capsys.readouterr().out == "pi5 is released: anna@desk had it for tune net\n"
    assert main(["fleet", "release", "pi5", "--force", *records]) == 2


def test_without_shared_records_there_is_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGETLM_RECORDS", raising=False)
    for command in (["status"], ["release", "pi5", "--force"]):
        assert main(["fleet", *command, "--records", str(tmp_path / "r.sqlite")]) == 2
        assert "boards are leased where hosts share their records" in capsys.readouterr().err


def test_what_a_stranger_wrote_is_shown_as_text(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;x\x07\u202e[bold red]d[/]"
    with LeaseTable(shared) as table:
        assert table.take(wanted("anna")) is None
        with table._database.writing() as connection:
            connection.exec_driver_sql(
                "UPDATE leases SET owner = %(t)s, job = %(t)s, name = %(t)s", {"t": evil}
            )
        holder = table.take(wanted("ben"))
        assert holder is not None and is_printable(str(holder))
    for form in ("table", "json", "csv", "md"):
        assert main(["fleet", "status", "--records", shared, "-o", form]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out and "\u202e" not in out and "[bold red]d" in out


def test_a_board_that_has_drifted_shows_it_whoever_has_it(table: LeaseTable, place: str | Path) -> None:
    times = ReferenceTimes("0" * 64, {}, {"stream": (1e-3, 1e-3)})
    with BoardEpochs(place) as epochs:
        epoch = epochs.begin("board", "pi5", times)
        assert table.take(wanted()) is None and table.take(wanted(board="another", name="pi6")) is None
        assert [one.health for one in table.status()] == ["held", "held"]
        epochs.end(epoch.key, "stream takes 8% longer", "anna@desk")
        assert [(one.name, one.health, one.owner) for one in table.status()] == [
            ("pi5", "drifted", "anna@desk"),
            ("pi6", "held", "anna@desk"),
        ]
        epochs.begin("board", "pi5", times)
        assert [one.health for one in table.status()] == ["held", "held"]
