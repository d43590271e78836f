"""What boards do, out of the shared records: the last measurement of each, its temperature, and figures."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from device_agent.contract.metrics import LOOPBACK, exposition
from host.errors import UserError
from host.leases import LeaseTable, Request
from host.leases.activity import activity, metrics
from host.model.reference_times import ReferenceTimes
from host.records import Record, RecordOrigin, RecordStore
from host.records.epochs import BoardEpochs
from sdk.cli.main import main
from sdk.management import fleet
from tests.unit.contract.test_metrics import ask, parsed
from tests.unit.records.samples import record

TIMES = ReferenceTimes("0" * 64, {}, {"stream": (1e-3, 1.1e-3)})


def measured(epoch: str, minutes: float, zones: Any = None, ms: float = 1.0) -> Record:
    one = record(ms)
    state = {} if zones is None else {"temperatures_c": zones}
    return replace(
        one,
        origin=RecordOrigin.read({"epoch": epoch}),
        made_at=(datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(),
        measurement=replace(one.measurement, state_after=state),
    )


def stock(place: str | Path) -> None:
    """Three boards: one that measures and is waited for, one that has drifted, one without an epoch."""
    with LeaseTable(place) as table, BoardEpochs(place) as epochs, RecordStore(place) as store:
        for number, (name, owner) in enumerate(
            [("pi5", "anna"), ("pi5", "ben"), ("orin", "carl"), ("new", "dora")]
        ):
            table.take(Request(f"ssh:{name}", name, f"{owner}@desk", f"tune net{number}", f"ticket{number}"))
        before, pi5 = epochs.begin("ssh:pi5", "pi5", TIMES), epochs.begin("ssh:pi5", "pi5", TIMES)
        orin = epochs.begin("ssh:orin", "orin", TIMES)
        store.append(
            [
                measured(pi5.key, 30.0, {"cpu": 40.0}, 3.0),
                measured(pi5.key, 10.0, {"cpu": 55.5, "gpu": 50.0}, 2.0),
                measured(orin.key, 200.0, {"cpu": "hot", "soc": float("1e3"), "x": True}),
                measured(before.key, 1.0, {"cpu": 90.0}, 4.0),
            ]
        )
        epochs.end(orin.key, "stream takes 8% longer", "anna@desk")


def test_the_last_measurement_of_the_present_epoch_counts(place: str | Path) -> None:
    assert activity(place) == ()
    stock(place)
    by_name = {one.status.name: one for one in activity(place)}
    assert {name: one.status.health for name, one in by_name.items()} == {
        "pi5": "held",
        "orin": "drifted",
        "new": "held",
    }
    assert by_name["pi5"].temperature_c == 55.5 and by_name["orin"].temperature_c == 1e3
    assert by_name["pi5"].measured_at is not None and by_name["orin"].measured_at is not None
    assert by_name["pi5"].measured_at - by_name["orin"].measured_at == pytest.approx(190 * 60, abs=60)
    assert (by_name["new"].temperature_c, by_name["new"].measured_at) == (None, None)


def test_the_figures_of_all_boards_are_of_the_format(place: str | Path) -> None:
    assert parsed(exposition(metrics(activity(place)))) == {"edgetlm_fleet_boards": [0.0] * 5}
    stock(place)
    found = parsed(exposition(metrics(activity(place))))
    assert found["edgetlm_fleet_boards"] == [0.0, 2.0, 0.0, 0.0, 1.0]
    assert sorted(found["edgetlm_fleet_board_waiting"]) == [0.0, 0.0, 1.0]
    assert sorted(found["edgetlm_fleet_board_drifted"]) == [0.0, 0.0, 1.0]
    assert sorted(found["edgetlm_fleet_board_temperature_celsius"]) == [55.5, 1e3]
    assert len(found["edgetlm_fleet_board_measured_timestamp_seconds"]) == 2


def test_top_shows_it_once(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "top", "--once", "--records", shared]) == 0
    assert capsys.readouterr().out == "no board was leased yet\n"
    stock(shared)
    assert main(["fleet", "top", "--once", "--records", shared]) == 0
    lines = capsys.readouterr().out.splitlines()
    (pi5,) = [line for line in lines if line.split()[:1] == ["pi5"]]
    assert all(text in pi5 for text in ("anna@desk", "tune net0", "56 C", "10 min ago", "held", " 1 "))
    assert any("orin" in line and "3 h ago" in line and "drifted" in line for line in lines)
    assert main(["fleet", "top", "--records", shared, "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["pi5"]["waiting"] == 1 and rows["pi5"]["temperature_c"] == 55.5
    assert 590 < rows["pi5"]["measured_s"] < 1200 and rows["new"]["measured_s"] is None


def test_top_is_redrawn_on_a_terminal_alone(shared: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "top", "--records", shared]) == 2
    assert "add --once" in capsys.readouterr().err
    for words in (["top", "--once"], ["metrics"]):
        assert main(["fleet", *words, "--records", "records.sqlite"]) == 2
        assert "boards are leased where hosts share their records" in capsys.readouterr().err


def test_prometheus_is_answered_with_what_there_is_now(shared: str) -> None:
    with fleet.metrics_server(shared, LOOPBACK, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert parsed(ask(server, "/metrics")[2])["edgetlm_fleet_boards"] == [0.0] * 5
            stock(shared)
            assert parsed(ask(server, "/metrics")[2])["edgetlm_fleet_boards"] == [0.0, 2.0, 0.0, 0.0, 1.0]
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(UserError, match=r"nothing can listen on nowhere, port 1"):
        fleet.metrics_server(shared, "nowhere", 1)
