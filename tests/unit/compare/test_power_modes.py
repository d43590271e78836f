"""The sweep of power modes on a board whose latency and energy in each mode are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from host.compare.energy_windows import IdlePower
from host.compare.entrants import EntrantResult
from host.compare.pareto import pareto
from host.compare.power_modes import ModeSwitch, current_modes, list_modes, settings_of
from host.compare.runner import Condition, Effort, InterleavedRun
from host.errors import DeviceError, MeasureError, UserError
from host.progress import Silence
from tests.unit.compare.power_samples import NO_SENSOR, Board, Session, window

# Time and watts: twice the time at a third of the power, and a mode that gains nothing.
TRUTH = {"schedutil": (1.0, 6.0), "performance": (0.8, 9.0), "powersave": (2.0, 2.0), "odd": (2.5, 3.0)}
EFFORT = Effort(passes=3, rounds=2, windows=1)


def board(**more: object) -> Board:
    return Board(dict(TRUTH), **more)  # type: ignore[arg-type]


def swept(
    device: Board, sessions: dict[str, Session] | None = None, absent: Sequence[str] = ()
) -> tuple[list[EntrantResult], InterleavedRun]:
    """All modes of a board, as they are gone through for variants of a model."""
    modes = list_modes(device)
    sessions = sessions or {"fast/2": Session(device, 0.010), "fast/1": Session(device, 0.015, watts=0.6)}

    def idle_power() -> IdlePower:
        energy = Session(device, 0.01).measure(energy=True).energy
        return IdlePower(energy.idle_w, energy.idle_std_w)

    with ModeSwitch(device, modes, lambda text: None) as switch:
        conditions = [
            Condition(
                [],
                setting.name,
                absent=() if setting.mode is None else absent,
                enter=partial(switch.set, setting),
                idle_power=None if setting.mode is None else idle_power,
            )
            for setting in settings_of(modes, ("all",), "board")
        ]
        run = InterleavedRun(sessions, conditions, EFFORT)  # type: ignore[arg-type]
        run.run(Silence())
    return [
        replace(one, mode=condition.name, threads=int(one.name[-1]))
        for condition in conditions
        for one in run.results(condition).values()
    ], run


def test_every_mode_gives_the_truth() -> None:
    device = board()
    points, run = swept(device)
    assert not run.refused
    assert len(points) == 2 * len(TRUTH)
    for point in points:
        slower, watts = TRUTH[point.mode]
        milliseconds = (10.0 if point.threads == 2 else 15.0) * slower
        assert point.latency_s is not None and point.gross_j is not None
        assert point.latency_s.value * 1e3 == pytest.approx(milliseconds)
        share = 1.0 if point.threads == 2 else 0.6
        assert point.gross_j.value * 1e3 == pytest.approx(milliseconds * watts * share)
        assert point.mean_w == pytest.approx(watts * share)
        assert len(point.windows) == 3 and len(point.rounds_s) == 6


def test_the_front_of_the_truth() -> None:
    points, _ = swept(board())
    found = pareto(points)
    assert [(one.mode, one.threads) for one in found.front] == [
        ("performance", 2),
        ("schedutil", 2),
        ("schedutil", 1),
        ("powersave", 2),
        ("powersave", 1),
    ]
    assert {name.rpartition(", ")[2] for name in found.dominated} == {"performance", "odd"}


def test_modes_take_turns_and_the_board_ends_where_it_began() -> None:
    device = board()
    swept(device)
    assert device.mode == "schedutil" == device.history[-1]
    # There and back again, three times: no mode is measured only early or only late.
    assert [mode for mode in device.history if mode != "schedutil"][:6] == [
        "performance",
        "powersave",
        "odd",
        "powersave",
        "performance",
        "performance",
    ] or device.history[:3] == ["performance", "powersave", "odd"]


def test_a_mode_that_is_refused_leaves_the_others() -> None:
    device = board(fails={"powersave": "permission denied"})
    points, run = swept(device)
    assert {point.mode for point in points} == set(TRUTH) - {"powersave"}
    assert run.refused == {"powersave": "power mode powersave cannot be set: board: permission denied"}
    assert device.mode == "schedutil"


def test_the_board_is_restored_when_the_measurement_breaks_off() -> None:
    device = board()
    modes = list_modes(device)
    [setting] = settings_of(modes, ("powersave",), "board")[1:]
    with pytest.raises(KeyboardInterrupt), ModeSwitch(device, modes, lambda text: None) as switch:
        switch.set(setting)
        assert device.mode == "powersave"
        raise KeyboardInterrupt
    assert device.mode == "schedutil"


def test_a_board_that_cannot_be_restored_is_told_of() -> None:
    device = board()
    modes = list_modes(device)
    said: list[str] = []
    [setting] = settings_of(modes, ("powersave",), "board")[1:]
    with ModeSwitch(device, modes, said.append) as switch:
        switch.set(setting)
        device.gone = True
    assert said == [
        "board: the power mode was not restored to schedutil "
        "(board: the device agent went away); set it there"
    ]


def test_a_mode_of_another_kind_is_undone_before_the_next() -> None:
    class TwoKinds(Board):
        def _listed(self, name: str) -> dict[str, object]:
            kind = "nvpmodel" if name in ("MAXN", "15W") else "governor"
            current = name in ("MAXN", "schedutil")
            return {"name": name, "kind": kind, "current": current, "settable": True, "reason": None}

    device = TwoKinds(dict.fromkeys(("MAXN", "15W", "schedutil", "powersave"), (1.0, 1.0)))
    modes = list_modes(device)
    assert current_modes(modes) == "MAXN, schedutil"
    settings = settings_of(modes, ("all",), "board")
    assert [setting.name for setting in settings] == ["MAXN, schedutil", "15W", "powersave"]
    with ModeSwitch(device, modes, lambda text: None) as switch:
        for setting in settings:
            switch.set(setting)
        assert device.history == ["15W", "MAXN", "powersave"]
    assert device.history == ["15W", "MAXN", "powersave", "schedutil"]


def test_names_are_checked_before_anything_is_set() -> None:
    device = board(locked={"performance": "needs root: install the agent with --system"})
    modes = list_modes(device)
    with pytest.raises(UserError, match="--power-modes fast: board has no such mode; it has schedutil"):
        settings_of(modes, ("fast",), "board")
    with pytest.raises(UserError, match="cannot be set to it"):
        settings_of(modes, ("performance",), "board")
    assert [one.name for one in settings_of(modes, ("all",), "board")] == ["schedutil", "powersave", "odd"]
    assert [one.name for one in settings_of(modes, (), "board")] == ["schedutil"]
    assert device.history == []


def test_a_device_that_goes_away_ends_the_sweep() -> None:
    device = board()
    modes = list_modes(device)
    device.gone = True
    [setting] = settings_of(modes, ("powersave",), "board")[1:]
    with pytest.raises(MeasureError, match="went away"):
        ModeSwitch(device, modes, lambda text: None).set(setting)
    with pytest.raises(DeviceError):
        list_modes(device)


def test_power_without_work_is_the_modes_own() -> None:
    # The board's idle power in a mode is a quarter of its watts there; a session takes that of its first.
    points, _ = swept(board())
    for point in points:
        assert point.gross_j is not None and point.net_j is not None and point.energy is not None
        idle_w = TRUTH[point.mode][1] / 4
        assert point.energy.idle_w == pytest.approx(idle_w)
        assert point.latency_s is not None
        expected = point.gross_j.value - idle_w * point.latency_s.value
        assert point.net_j.value == pytest.approx(expected, rel=0.01)


def test_net_energy_within_the_spread_of_idle_is_not_told_apart() -> None:
    energy = window(10.0, 20.0).energy
    assert IdlePower(1.0, 0.01).applied(energy).above_idle_j == pytest.approx(0.010)
    lost = IdlePower(1.9, 0.05).applied(energy)
    assert (lost.above_idle_j, lost.reason) == (None, "not distinguishable from idle")
    none = IdlePower(None, None, "the sensor fails").applied(energy)
    assert (none.above_idle_j, none.idle_w, none.reason) == (None, None, "the sensor fails")
    assert IdlePower(1.0, 0.1).applied(NO_SENSOR) is NO_SENSOR


def test_what_is_only_compared_is_measured_in_the_boards_own_mode_alone() -> None:
    device = board()
    sessions = {"fast/1": Session(device, 0.01), "untuned/1": Session(device, 0.02)}
    swept(device, sessions, absent=["untuned/1"])
    assert {mode for mode, _ in sessions["untuned/1"].asked} == {"schedutil"}
    assert {mode for mode, _ in sessions["fast/1"].asked} == set(TRUTH)
