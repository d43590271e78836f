"""`sdk tlm evaluate` from the search of a baseline to the figures, on one tiny product."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm import te, tirx

from host.build import target_for
from host.compile.device_profile import profile_of
from host.errors import ScheduleError
from host.model import Candidate, DeviceProfile
from host.records import Record
from host.records.store import profile_data
from host.schedules import DesignSpace, space_for
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from host.tlm.training.example import Example
from host.tlm.training.finetune import FinetuneOptions, FinetuneResult, examples_of
from host.tlm.training.replay import REPLAY, write_replay
from host.transport import Device, connect
from host.tuning.proposers.random_sampling import RandomSampling
from research.baselines.__main__ import SearchSetup, packed
from research.baselines.logged_search import LoggedRunner, search_task
from research.baselines.tasks import Network
from research.evaluation import learning
from research.evaluation.baseline import read_baseline, write_baseline
from research.evaluation.bench import Bench, MeasurePlan, open_bench, restricted
from research.evaluation.comparison import baseline_program, compare_finalists, program_of_record
from research.evaluation.learning import Learner, LearnOptions
from research.evaluation.proposals import Subject
from research.evaluation.validity import Validity, Writer
from sdk.cli.main import main
from targets import board_for, declared
from tests.unit.research.evaluation.cases import dense_task
from tests.unit.schedules import functions as fn

QUICK = MeasurePlan(samples=2, sample_ms=0.1, rounds=2)
TASK = dense_task()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with connect("local") as opened:
        yield opened


@pytest.fixture(scope="module")
def profile(device: Device) -> DeviceProfile:
    return profile_of(device, 1)


@pytest.fixture(scope="module")
def baselines(device: Device, profile: DeviceProfile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the baseline `tiny`, of a search of two trials that was continued to four."""
    folder = tmp_path_factory.mktemp("baselines")
    with device.open_session("tvm", 1) as session, LoggedRunner(session) as runner:
        place = SearchSetup(profile, runner, folder / "records", trials=2, seed=0)
        target = target_for(profile.board)
        # As left by a search that was killed while it built.
        (place.folder(TASK) / "building" / "candidate0").mkdir(parents=True)
        lost = json.dumps({"wall_s": 0.5, "cpu_s": 0.25, "seconds": 1e-9})
        (place.folder(TASK) / "trials.jsonl").write_text(f'{lost}\n{{"wall_s": 0.')
        for trials in (2, 4, 2):
            search_task(TASK, target, 1, runner, place.folder(TASK), trials, 0, cost_model="random")
        network = Network("tiny", (TASK,), {TASK.workload_hash: 1e-5}, (TASK,), 0.75, 4e-5)
        write_baseline(packed(network, place, {"cpu": "test"}), folder)
        longer = packed(network, replace(place, trials=4), {"cpu": "test"})
    assert [entry.searches[4].trials for entry in longer.tasks] == [4]
    assert longer.tasks[0].searches[4].wall_s > read_baseline(folder, "tiny").tasks[0].searches[2].wall_s
    return folder


@pytest.fixture
def bench(device: Device, profile: DeviceProfile, tmp_path: Path) -> Iterator[Bench]:
    with open_bench(device, profile, tmp_path, QUICK) as opened:
        yield opened


def _without_relu() -> tirx.PrimFunc:
    a = te.placeholder((24, 32), name="A")
    w = te.placeholder((4, 32, 16), name="W")
    k = te.reduce_axis((0, 32), name="k")
    product = te.compute(
        (24, 64), lambda i, j: te.sum(a[i, k] * w[j // 16, k, j % 16], axis=k), name="matmul"
    )
    return te.create_prim_func([a, w, product])


def test_a_search_is_on_record_with_its_history(baselines: Path) -> None:
    [entry] = read_baseline(baselines, "tiny").tasks
    history = entry.searches[2]
    assert (history.trials, history.failed) == (2, 0)
    # The program that never came on record took its time, and is nobody's best.
    assert 0.5 < history.by_time[0].wall_s <= history.wall_s
    assert history.cpu_s > 0
    assert history.by_trial[0][0] == 1
    assert [seconds for _, seconds in history.by_trial] == [one.seconds for one in history.by_time]
    assert entry.share == pytest.approx(TASK.weight * 1e-5 / 4e-5)
    assert 1 <= len(history.records) <= 2


def test_wrong_programs_are_left_out_and_equal_ones_share_their_time(bench: Bench, baselines: Path) -> None:
    [entry] = read_baseline(baselines, "tiny").tasks
    best = baseline_program(bench, entry, 2)
    # The same product without its ReLU takes the same arguments.
    other = bench.build(_without_relu())
    again = bench.build(program_of_record(TASK, entry.searches[2].records[0]))
    comparison = compare_finalists(bench, entry, best, {"wrong": other, "one": again, "same": again})
    assert set(comparison.wrong) == {"wrong"} and "off by" in comparison.wrong["wrong"]
    assert comparison.seconds["one"] == comparison.seconds["same"] > 0
    assert comparison.error < 1e-5


def test_the_best_of_the_measured_is_chosen(bench: Bench) -> None:
    subject = Subject(bench, TASK)
    few, many = (subject.select(RandomSampling(), budget, 0) for budget in (1, 4))
    assert (few.proposed, many.proposed, many.applied) == (1, 4, 4)
    candidates = RandomSampling().propose(subject.space, bench.profile, (), 4, 0)  # type: ignore[arg-type]
    times = [subject.measured(candidate).seconds for candidate in candidates]
    fastest = times.index(min(times))  # type: ignore[type-var]
    assert many.decisions == candidates[fastest].decisions
    assert many.seconds > few.seconds > 0


def test_the_same_machine_restricted_is_another_board(profile: DeviceProfile) -> None:
    description = declared()["x86_64-v4"]
    board = board_for(description)
    assert board is not None
    profile = replace(profile, board=board, hardware=board.hardware)
    assert restricted(profile, description, "") is profile
    narrow = restricted(profile, description, "avx2")
    assert narrow.board.name != profile.board.name
    assert narrow.hardware.lanes == 8
    assert narrow.threads == profile.threads


def test_evaluate_writes_the_figures(
    baselines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    _checkpoint(tmp_path / "model", 1)
    path = tmp_path / "figures.json"
    command = ["tlm", "evaluate", "--baselines", str(baselines), "--checkpoint", str(tmp_path / "model")]
    assert main([*command, "--budget", "0,2", "--rounds", "2", "--json", str(path)]) == 0
    assert "tiny             2 measured: tlm" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["baseline"] == "metaschedule-2"
    entry = figures["networks"]["tiny"]
    assert set(entry["budgets"]) == {"0", "2"}
    for ratios in entry["budgets"].values():
        assert set(ratios) == {"tlm", "gensor", "tree", "random"}
        assert all(value > 0 for value in ratios.values())
    assert entry["coverage"] == 0.75
    assert entry["same_target"] is True
    assert entry["valid_share"] == 1.0
    assert entry["seconds_per_proposal"] > 0
    assert all(seconds > 0 for seconds in entry["tuning"]["seconds"]["tlm"].values())
    assert len(entry["curves"]["gensor"]) == 2
    assert entry["curves"]["evolutionary"][-1] == [entry["curves"]["evolutionary"][-1][0], 1.0]
    assert entry["tasks"][0]["workload"] == TASK.workload_hash
    assert entry["tasks"][0]["max_rel_err"] < 1e-5


def _checkpoint(folder: Path, seed: int, replay: Sequence[Example] = ()) -> Path:
    size = Size(layers=1, heads=1, width=32)
    vocabulary = Vocabulary()
    save_model(new_model(vocabulary, size, seed=seed), folder, vocabulary, size, "base", {})
    if replay:
        write_replay(folder / REPLAY, replay, len(replay), 0, vocabulary)
    return folder


def test_programs_that_do_not_apply_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_for(TASK, fn.board().hardware, 1)
    writer = Writer(_checkpoint(tmp_path / "model", 1))
    assert writer.check(space, 0) == Validity(32, 32)
    calls: list[object] = []

    def apply(self: DesignSpace, candidate: Candidate) -> None:
        calls.append(candidate)
        if len(calls) % 4 == 0:
            raise ScheduleError("every fourth")

    monkeypatch.setattr(DesignSpace, "apply", apply)
    assert (writer.check(space, 0) + Validity(8, 1)).share == 25 / 40


def test_the_model_learns_between_its_measurements(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every round measures programs that are new, and the accepted model proposes the next ones."""
    monkeypatch.setattr(learning, "_ROUND", 4)
    monkeypatch.setattr(learning, "_MIN_PROGRAMS", 4)
    subject = Subject(bench, TASK)
    first, other = _checkpoint(tmp_path / "first", 1), _checkpoint(tmp_path / "other", 2)
    learned: list[int] = []
    asked: list[Path] = []

    def finetune(options: FinetuneOptions, examples: Sequence[Example], tell: object) -> FinetuneResult:
        learned.append(sum(len(example.programs) for example in examples))
        assert options.start == first
        return FinetuneResult(True, 1.0, 0.5, other, 2, 1, 1, 0.0)

    class Watched(Tlm):
        def __init__(self, checkpoint: Path, **options: Any) -> None:
            super().__init__(checkpoint, **options)
            asked.append(checkpoint)

    monkeypatch.setattr("host.tlm.training.finetune.finetune", finetune)
    monkeypatch.setattr(learning, "Tlm", Watched)
    told: list[str] = []
    options = LearnOptions(first, tmp_path / "learning", steps=2)
    with Learner({TASK.workload_hash: subject}, options, told.append) as learner:
        found = learner.run((0, 4, 8))
    assert learned == [4]
    assert asked == [first, other]
    assert told == ["fine-tuned on 4 programs, in use: error 1.000 to 0.500"]
    assert [found[TASK.workload_hash, budget].proposed for budget in (0, 4, 8)] == [1, 4, 8]
    assert found[TASK.workload_hash, 8].seconds > found[TASK.workload_hash, 4].seconds


def test_the_model_stays_where_one_task_was_measured(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one task nothing is learned: none could be withheld to judge what was learned."""
    monkeypatch.setattr(learning, "_MIN_PROGRAMS", 20)
    drawn = Subject(bench, TASK)
    assert drawn.space is not None
    candidates = RandomSampling().propose(drawn.space, bench.profile, (), 20, 0)
    data = profile_data(bench.profile)
    trials = [(one, drawn.measured(one).measurement) for one in candidates]
    records = [Record(one, data, measured) for one, measured in trials if measured is not None]
    replay = examples_of(records, {TASK.workload_hash: drawn.space}, Vocabulary())
    checkpoint = _checkpoint(tmp_path / "model", 1, replay)
    told: list[str] = []
    options = LearnOptions(checkpoint, tmp_path / "learning", steps=2)
    with Learner({TASK.workload_hash: Subject(bench, TASK)}, options, told.append) as learner:
        found = learner.run((20, 21))
    assert len(told) == 1 and "20 measured programs of 1 tasks are too few" in told[0]
    assert found[TASK.workload_hash, 21].proposed == 21


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--networks", "absent"], "research.baselines --networks absent"),
        (["--budget", "0,-1"], "--budget"),
        (["--methods", "gensor,guess"], "guess"),
        (["--restrict", "sse"], "--restrict sse"),
    ],
)
def test_wrong_commands_say_what_to_type(
    baselines: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tlm", "evaluate", "--baselines", str(baselines), "--methods", "gensor"]
    assert main([*command, *options]) == 2
    assert says in capsys.readouterr().err
