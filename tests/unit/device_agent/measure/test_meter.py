"""The protocol of measuring energy: trials, throttling, cooling."""

from __future__ import annotations

import time

import pytest

from device_agent.measure import sampling
from device_agent.measure.energy import EnergyError
from device_agent.measure.meter import PowerMeter, serve
from device_agent.power.none import NoSensor
from tests.unit.device_agent.measure.windows import PLAN, window

WATTS = 7.0


class Steady:
    """A sensor of watts that is always the same, or fails as often as it is told to."""

    quantity = "power"
    period_s = 0.01

    def __init__(self, watts=WATTS, unavailable=None):
        self.watts = watts
        self.unavailable = unavailable
        self.failing = False
        self.closed = False

    def probe(self):
        return self.unavailable

    def read(self):
        if self.failing:
            raise OSError(5, "Input/output error")
        return self.watts

    def describe(self):
        return {"source": "fake", "quantity": "power", "rails": ["all"], "boundary": "board"}

    def close(self):
        self.closed = True


class Board:
    """A machine whose temperature and throttling the test turns."""

    def __init__(self, hottest=40.0):
        self.hottest = hottest
        self.flags_now = {}
        self.asked = 0
        self.throttle = self

    def hottest_c(self):
        return self.hottest

    def flags(self):
        self.asked += 1
        return dict(self.flags_now)

    def power_mode(self):
        return "MODE_15W"

    def state(self):
        return {"temperatures_c": {"zone": self.hottest}, "throttle": self.flags()}


def test_one_window_is_measured_and_above_idle():
    sensor = Steady(2.0)
    power = PowerMeter(Board(), sensor)
    assert power.probe() == {"unavailable": None, "description": sensor.describe()}
    idle = power.idle(0.2)
    assert idle["mean_w"] == pytest.approx(2.0) and idle["std_w"] == pytest.approx(0.0, abs=1e-9)
    sensor.watts = WATTS
    begun, answer = window(power, PLAN)
    assert begun["window_s"] == pytest.approx(0.1)
    record = answer["energy"]
    assert record["mean_w"] == pytest.approx(WATTS) and record["idle_w"] == pytest.approx(2.0)
    assert record["gross_j"] == pytest.approx(WATTS * record["duration_s"] / 10)
    assert record["above_idle_j"] == pytest.approx((WATTS - 2.0) * record["duration_s"] / 10)
    assert (answer["keep"], answer["again"], answer["throttled"], answer["invalid"]) == (
        True,
        False,
        False,
        "",
    )
    assert record["trace"][0][2] == 40.0
    assert answer["conditions"]["power_mode"] == "MODE_15W"
    power.close()
    assert sensor.closed


def test_a_window_is_long_enough_for_a_slow_sensor():
    sensor = Steady()
    sensor.period_s = 0.2
    power = PowerMeter(Board(), sensor)
    assert power.begin({"energy_s": 5.0})["window_s"] == pytest.approx(10.0)
    power.end(time.monotonic(), time.monotonic(), 0)


def test_trials_are_asked_for_and_their_spread_is_recorded():
    sensor = Steady()
    power = PowerMeter(Board(), sensor)
    _, first = window(power, dict(PLAN, trials=3))
    assert first["again"] and first["keep"] and first["energy"]["trials"] == 1
    sensor.watts = WATTS * 1.1
    _, second = window(power)
    assert second["again"]
    _, third = window(power)
    assert not third["again"] and third["energy"]["trials"] == 3 and third["energy"]["std_j"] > 0
    assert third["energy"]["n_inferences"] == 30 and third["conditions"]["windows"] == 3
    # The next measurement begins anew.
    _, fresh = window(power, PLAN)
    assert fresh["energy"]["trials"] == 1 and fresh["conditions"]["windows"] == 1


def test_windows_begin_when_the_board_is_as_cool_as_at_the_start():
    board, slept = Board(40.0), []

    def sleep(seconds):
        slept.append(seconds)
        board.hottest -= 4.0

    power = PowerMeter(board, Steady(), sleep)
    window(power, dict(PLAN, trials=2, cool_c=2.0))
    board.hottest = 55.0
    _, answer = window(power)
    assert len(slept) == 4 and board.hottest == 39.0
    assert answer["conditions"]["cooldown_timeouts"] == 0 and answer["conditions"]["start_c"] == 40.0


def test_a_board_that_stays_hot_is_measured_all_the_same_and_that_is_recorded():
    board = Board(40.0)
    power = PowerMeter(board, Steady())
    window(power, dict(PLAN, trials=2, cool_s=0.05))
    board.hottest = 90.0
    _, answer = window(power)
    assert answer["conditions"]["cooldown_timeouts"] == 1
    assert answer["conditions"]["cooldown_s"] >= 0.05 and answer["energy"]["trials"] == 2
    assert answer["state_after"]["temperatures_c"] == {"zone": 90.0}
    assert answer["state_before"]["temperatures_c"] == {"zone": 40.0}


def test_contenders_can_begin_at_one_temperature():
    board, slept = Board(50.0), []

    def sleep(seconds):
        slept.append(seconds)
        board.hottest -= 1.0

    window(PowerMeter(board, Steady(), sleep), dict(PLAN, start_c=45.0))
    assert board.hottest == 47.0 and len(slept) == 3


def throttles(board):
    board.flags_now["core_throttle_count"] = board.flags_now.get("core_throttle_count", 0) + 1


def test_a_throttled_window_is_repeated_and_its_times_do_not_count():
    board = Board()
    throttles(board)
    power = PowerMeter(board, Steady())
    _, hot = window(power, PLAN, during=lambda: throttles(board))
    assert hot["again"] and not hot["keep"] and hot["throttled"]
    assert hot["energy"]["kind"] == "unavailable"
    _, cool = window(power)
    assert cool["keep"] and not cool["again"] and not cool["throttled"]
    assert (cool["conditions"]["retries"], cool["conditions"]["windows"]) == (1, 2)
    assert cool["energy"]["kind"] == "measured" and cool["energy"]["trials"] == 1


def test_a_board_that_throttles_every_time_is_marked():
    board = Board()
    throttles(board)
    power = PowerMeter(board, Steady())
    plan = dict(PLAN, trials=3, retries=1)
    assert window(power, plan, during=lambda: throttles(board))[1]["again"]
    _, answer = window(power, during=lambda: throttles(board))
    assert (answer["again"], answer["keep"], answer["throttled"]) == (False, True, True)
    assert answer["throttle_reasons"] == ["cores throttled 1 times"]
    assert answer["conditions"]["retries"] == answer["conditions"]["retry_limit"] == 1


def test_throttling_in_mid_window_is_seen_by_polling(monkeypatch):
    monkeypatch.setattr(sampling, "_POLL_S", 0.02)
    board = Board()
    board.flags_now["get_throttled"] = 0
    power = PowerMeter(board, Steady())

    def briefly():
        board.flags_now["get_throttled"] = 0x2
        # Until a whole look at the flags has seen it.
        enough, until = board.asked + 2, time.monotonic() + 60
        while board.asked < enough and time.monotonic() < until:
            time.sleep(0.005)
        board.flags_now["get_throttled"] = 0x0

    _, answer = window(power, dict(PLAN, retries=0), during=briefly)
    assert answer["throttled"] and answer["throttle_reasons"] == ["frequency capped"]


def test_a_weak_supply_makes_the_measurement_invalid_at_once():
    board = Board()
    board.flags_now["get_throttled"] = 0
    power = PowerMeter(board, Steady())
    _, answer = window(power, PLAN, during=lambda: board.flags_now.update(get_throttled=0x50005))
    assert answer["throttled"] and "supply" in answer["invalid"] and not answer["again"]


def test_after_throttling_it_waits_until_nothing_holds_a_clock_down():
    board = Board()
    power = PowerMeter(board, Steady(), lambda seconds: board.flags_now.update({"cooling:cpufreq-cpu0": 0}))
    board.flags_now["cooling:cpufreq-cpu0"] = 1
    assert window(power, PLAN)[1]["again"]
    _, answer = window(power)
    assert not answer["throttled"] and answer["conditions"]["retries"] == 1


def test_a_sensor_that_fails_too_often_gives_no_energy():
    sensor = Steady()
    power = PowerMeter(Board(), sensor)

    def fail():
        sensor.failing = True

    _, answer = window(power, dict(PLAN, trials=2), during=fail)
    assert answer["energy"]["kind"] == "unavailable" and "failed" in answer["energy"]["reason"]
    assert answer["energy"]["gross_j"] is None and answer["keep"] and not answer["again"]


def test_readings_that_fail_now_and_then_are_counted():
    sensor = Steady()
    reads = []

    def now_and_then():
        reads.append(1)
        if len(reads) == 20:
            raise OSError(11, "Resource temporarily unavailable")
        return WATTS

    sensor.read = now_and_then
    _, answer = window(PowerMeter(Board(), sensor), PLAN, seconds=0.8)
    record = answer["energy"]
    assert record["kind"] == "measured" and record["mean_w"] == pytest.approx(WATTS)
    assert record["n_dropped"] == 1 and record["n_samples"] > 20


@pytest.mark.parametrize(
    ("sensor", "plan", "reason"),
    [(NoSensor("none here"), PLAN, "none here"), (Steady(), dict(PLAN, energy=False), "not asked for")],
)
def test_without_energy_throttling_is_judged_all_the_same(sensor, plan, reason):
    board = Board()
    power = PowerMeter(board, sensor)
    begun, answer = window(power, plan)
    assert begun["window_s"] == 0.0
    assert answer["energy"]["source"] == reason and not answer["again"] and not answer["throttled"]
    throttles(board)
    _, answer = window(power, dict(plan, retries=0), during=lambda: throttles(board))
    assert answer["throttled"]


def test_an_executor_that_knows_no_trials_gets_one_window():
    power = PowerMeter(Board(), Steady())
    power.begin()
    time.sleep(0.12)
    end = time.monotonic()
    answer = power.end(end - 0.1, end, 5)
    assert answer["energy"]["trials"] == 1 and not answer["again"]
    with pytest.raises(ValueError, match="no window was begun"):
        power.end(0.0, 1.0, 1)


def test_idle_power_that_cannot_be_read_is_no_number():
    sensor = Steady()
    sensor.failing = True
    idle = PowerMeter(Board(), sensor).idle(0.1)
    assert idle["mean_w"] is None and "readings" in idle["reason"]
    with pytest.raises(EnergyError):
        sampling.idle_power(sensor, 0.05)


def test_requests_are_answered_line_by_line():
    lines = [b'{"do": "probe"}', b"no json", b'{"do": "dance"}', b'{"do": "end"}', b'{"do": "state"}', b"[]"]

    class Lines:
        def next(self):
            return lines.pop(0) if lines else None

    answers = []
    serve(PowerMeter(Board(), NoSensor("none here")), Lines(), answers.append)
    assert answers[0]["unavailable"] == "none here"
    assert "error" in answers[1] and answers[2] == {"error": "unknown request dance"}
    assert "start_s" in answers[3]["error"] and answers[4]["throttle"] == {}
    assert "error" in answers[5]
