"""Fine-tuning learns what is fast on a board, forgets nothing else, and is used only where it is better."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from host.deployment.profiles import profile_of
from host.errors import TlmError
from host.model import Candidate, DeviceProfile, Energy, Measurement
from host.records import Record, RecordStore, profile_data
from host.tlm import checkpoints, gate
from host.tlm.card import WEIGHTS, Size, read_card
from host.tlm.finetune import (
    STATE,
    Example,
    FinetuneOptions,
    FinetuneResult,
    Progress,
    examples_of,
    examples_of_records,
    finetune,
    main,
    read_result,
    write_job,
)
from host.tlm.language import decode, encode_prompt
from host.tlm.model import load_model, new_model, save_model
from host.tlm.packing import Lesson
from host.tlm.replay import REPLAY, read_replay, write_replay
from host.tlm.training import Schedule, Training
from host.tlm.vocabulary import Vocabulary, quality_token, spell_decisions
from host.transport import connect
from sdk.cli.main import main as main_command
from tests.unit.tlm.cases import spaces

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=1, width=32, positions=64)
CHOICES = tuple(2**n for n in range(5))


def _prompt(board: int, number: int) -> tuple[str, ...]:
    return ("<board>", "cpu", f"q{board}", "<task>", "rule:tiled", f"q{number}", "<decide>")


def _tokens(vectors: int, rows: int) -> tuple[int, ...]:
    return tuple(VOCABULARY.encode(spell_decisions([("vectors", vectors), ("rows", rows)])))


def _seconds(vectors: int, rows: int) -> float:
    """What the board prefers: many vectors and few rows."""
    return (2.0 + rows) / (1.0 + vectors)


def _example(board: int, number: int, seed: int, right: bool = True) -> Example:
    generator = random.Random(f"{seed}/{board}/{number}")
    programs = generator.sample([(v, r) for v in CHOICES for r in CHOICES], 12)
    times = [_seconds(*program) for program in programs]
    if not right:
        generator.shuffle(times)
    best = min(times)
    ranked = sorted(zip(times, programs, strict=True))
    return Example(
        number,
        tuple(VOCABULARY.encode(_prompt(board, number))),
        tuple((_tokens(*program), round(time / best, 4)) for time, program in ranked),
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the language and has no preference, with what it learned beside it."""
    folder = tmp_path_factory.mktemp("base")
    known = [_example(3, number, 0, right=False) for number in range(40)]
    quality = VOCABULARY.number(quality_token(0))
    training = Training(new_model(VOCABULARY, SIZE, 0), VOCABULARY, Schedule(120, 1e-2, 5), {})
    generator = random.Random(0)
    while training.step < 120:
        chosen = generator.choices(known, k=8)
        training.train([Lesson((*e.prompt, quality), decided) for e in chosen for decided, _ in e.programs])
    assert training.recent_loss < 1.6
    save_model(training.model, folder, VOCABULARY, SIZE, "", {})
    assert write_replay(folder / REPLAY, known, 30, 0, VOCABULARY.version) == 30
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _options(base: Path, out: Path, method: str = "full", **changes: object) -> FinetuneOptions:
    rate = {"full": 5e-3, "lora": 2e-2}[method]
    options = FinetuneOptions(base, out, steps=40, method=method, learning_rate=rate, save_every=10)
    return replace(options, **changes)  # type: ignore[arg-type]


def _measured(count: int, right: bool = True) -> list[Example]:
    return [_example(9, number, 1, right) for number in range(count)]


def _run(options: FinetuneOptions, examples: list[Example]) -> tuple[FinetuneResult, list[Progress]]:
    told: list[Progress] = []
    return finetune(options, examples, told.append), told


def _order(checkpoint: Path, example: Example) -> float:
    model, _ = load_model(checkpoint, VOCABULARY)
    return gate.task_errors(model, VOCABULARY, [example])[0]


@pytest.mark.parametrize("method", ["full", "lora"])
def test_right_times_are_learned_and_carry_over_to_other_tasks(
    base: Path, tmp_path: Path, method: str
) -> None:
    result, told = _run(_options(base, tmp_path / "tuned", method), _measured(30))
    assert result.accepted
    assert result.after < result.before - 0.2
    assert result.learned + result.withheld == 30
    assert result.checkpoint.parent == tmp_path / "tuned"
    assert checkpoints.accepted(tmp_path / "tuned") == result.checkpoint
    assert [one.done for one in told] == list(range(1, 41))
    unseen = _example(9, 77, 5)
    assert _order(result.checkpoint, unseen) < _order(base, unseen) - 0.2
    card = read_card(result.checkpoint)
    assert card.base == read_card(base).weights
    assert card.training["method"] == method and card.training["steps"] == 40
    assert not (tmp_path / "tuned" / STATE).exists()


@pytest.mark.parametrize("method", ["full", "lora"])
def test_wrong_times_are_refused_and_the_old_model_stays(base: Path, tmp_path: Path, method: str) -> None:
    good, _ = _run(_options(base, tmp_path / "tuned", method), _measured(30))
    learned, withheld = gate.split(_measured(30))
    wrong = {one.prompt: one for one in _measured(30, right=False)}
    mixed = [*[wrong[one.prompt] for one in learned], *withheld]
    # The programs are as many and as likely as those of right times: only their order is wrong.
    options = _options(base, tmp_path / "tuned", method, start=good.checkpoint, replay=base / REPLAY)
    result, _ = _run(options, mixed)
    assert not result.accepted
    assert result.after > result.before
    assert result.checkpoint == good.checkpoint
    assert checkpoints.accepted(tmp_path / "tuned") == good.checkpoint
    result, _ = _run(_options(base, tmp_path / "other", method), _measured(30, right=False))
    assert not result.accepted and result.checkpoint == base
    assert checkpoints.accepted(tmp_path / "other") is None


def test_replay_keeps_what_was_known_of_other_boards(base: Path, tmp_path: Path) -> None:
    # What the board likes is the opposite of what it has to say of every other one.
    kept, _ = _run(_options(base, tmp_path / "with"), _measured(30))
    lost, _ = _run(_options(base, tmp_path / "without", replay_share=0.0), _measured(30))
    assert lost.forgotten > kept.forgotten + 0.05
    assert kept.forgotten < 0.1


def test_few_records_are_withheld_by_program_and_too_few_are_refused(base: Path, tmp_path: Path) -> None:
    few = _measured(2)
    learned, withheld = gate.split(few)
    assert {one.prompt for one in learned} == {one.prompt for one in withheld}
    for one, other, whole in zip(learned, withheld, few, strict=True):
        assert sorted([*one.programs, *other.programs]) == sorted(whole.programs)
    assert _run(_options(base, tmp_path / "tuned"), few)[0].withheld == 2
    with pytest.raises(TlmError, match="1 measured programs of 1 tasks are too few"):
        gate.split([replace(few[0], programs=few[0].programs[:1])])
    with pytest.raises(TlmError, match="too few"):
        finetune(_options(base, tmp_path / "none"), [], lambda progress: None)


def test_what_is_withheld_stays_withheld_when_more_is_measured() -> None:
    few, many = _measured(30), _measured(60)
    before, after = ({one.prompt for one in gate.split(examples)[1]} for examples in (few, many))
    assert len(before) >= 3
    assert before <= after
    learned, withheld = gate.split([*many, replace(many[0], index=99)])
    assert not {one.prompt for one in learned} & {one.prompt for one in withheld}


def test_the_error_is_of_the_order_and_not_of_how_likely_all_programs_are(base: Path) -> None:
    model, _ = load_model(base, VOCABULARY)
    example = _example(9, 1, 1)
    backwards = replace(
        example,
        programs=tuple(
            (tokens, slower)
            for (tokens, _), (_, slower) in zip(reversed(example.programs), example.programs, strict=True)
        ),
    )
    # A model without a preference is about as wrong about an order as about its opposite.
    one, other = gate.task_errors(model, VOCABULARY, [example, backwards])
    assert one + other == pytest.approx(1.0, abs=0.35)
    # A model that finds everything likelier alike is no better.
    assert gate._misordered([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]) == 0.0
    assert gate._misordered([-3.0, -2.0, -1.0], [1.0, 2.0, 3.0]) == 1.0
    assert gate._misordered([-3.0, -2.0, -1.0], [1.0, 1.01, 1.02]) == 0.0
    assert gate.compare([1.0, 1.0, 1.0], [0.5, 0.6, 0.4]).accepted
    assert not gate.compare([1.0, 1.0, 1.0], [0.2, 1.5, 1.2]).accepted
    assert not gate.compare([1.0], [1.0]).accepted


def test_many_programs_of_a_task_are_thinned_out_from_the_fastest_to_the_slowest(base: Path) -> None:
    programs = tuple((_tokens(number, 1), 1.0 + number) for number in range(300))
    thinned = gate._thinned(Example(0, _example(9, 1, 1).prompt, programs))
    assert len(thinned.programs) == 64
    assert (thinned.programs[0], thinned.programs[-1]) == (programs[0], programs[-1])
    slower = [time for _, time in thinned.programs]
    assert slower == sorted(set(slower))


class _Cut(Exception):
    pass


@pytest.mark.parametrize("method", ["full", "lora"])
def test_an_interrupted_training_ends_like_one_that_was_not(base: Path, tmp_path: Path, method: str) -> None:
    whole, _ = _run(_options(base, tmp_path / "whole", method), _measured(30))

    def cut(progress: Progress) -> None:
        if progress.done == 27:
            raise _Cut

    options = _options(base, tmp_path / "cut", method)
    with pytest.raises(_Cut):
        finetune(options, _measured(30), cut)
    result, told = _run(replace(options, resume=True), _measured(30))
    assert told[0].done == 21
    assert (result.checkpoint / WEIGHTS).read_bytes() == (whole.checkpoint / WEIGHTS).read_bytes()
    with pytest.raises(_Cut):
        finetune(options, _measured(30), cut)
    with pytest.raises(TlmError, match="choose another folder"):
        finetune(replace(options, resume=True), _measured(29), lambda progress: None)
    (tmp_path / "cut" / STATE).write_bytes(b"nothing")
    with pytest.raises(TlmError, match="damaged"):
        finetune(replace(options, resume=True), _measured(30), lambda progress: None)


def test_a_time_limit_ends_the_training(base: Path, tmp_path: Path) -> None:
    result, told = _run(_options(base, tmp_path / "tuned", steps=100000, seconds=0.05), _measured(30))
    assert result.steps == len(told) < 1000


def test_a_job_runs_in_a_process_of_its_own(base: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    write_job(job, _options(base, tmp_path / "tuned"), _measured(30))
    with pytest.raises(TlmError, match="no result"):
        read_result(job)
    command = [sys.executable, "-m", "host.tlm.finetune", "--job", str(job)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = read_result(job)
    assert result.accepted and checkpoints.accepted(tmp_path / "tuned") == result.checkpoint


def test_errors_of_a_job_are_one_line(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json"
    job.write_text("{}")
    assert main(["--job", str(job)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    write_job(job, _options(base, tmp_path / "tuned", start=tmp_path / "nothing"), _measured(30))
    assert main(["--job", str(job)]) == 1
    assert "no language model there" in capsys.readouterr().err
    with pytest.raises(TlmError, match="one of full, lora"):
        _run(replace(_options(base, tmp_path / "tuned"), method="half"), _measured(30))


def _record(values: dict[str, int], seconds: float, sentence: object, **changes: object) -> Record:
    candidate = Candidate("task", "tiled", tuple(values.items()), "tlm", math.nan)
    measurement = Measurement((seconds,), Energy("unavailable", None, None, ""), {}, {}, 1)
    record = Record(candidate, {"board": "b", "threads": 1}, measurement, origin={"sentence": sentence})
    return replace(record, **changes)  # type: ignore[arg-type]


def test_records_become_examples_and_what_is_of_no_use_is_counted() -> None:
    sentence = [*_prompt(9, 4), quality_token(0)]
    first = _record({"vectors": 4, "rows": 1}, 2.0, sentence)
    records = [
        first,
        _record({"vectors": 2, "rows": 1}, 1.0, sentence),
        _record({"vectors": 4, "rows": 1}, 1.5, sentence),
        _record({"vectors": 1, "rows": 1}, 1.0, sentence, profile={"board": "c", "threads": 1}),
        _record({"vectors": 1, "rows": 1}, 1.0, None),
        _record({"vectors": 1, "rows": 1}, 1.0, ["<task>"]),
        _record({"vectors": 1, "rows": 1}, 1.0, ["<board>", "no word", "<decide>"]),
        _record({"vectors": 1, "rows": 1}, 1.0, sentence[:3]),
        _record({"unheard": 1}, 1.0, sentence),
        _record({"vectors": 1}, 1.0, [*sentence[:4], *["q1"] * 260, *sentence[4:]]),
        _record({}, 1.0, sentence),
        replace(first, candidate=replace(first.candidate, space_version=1)),
        Record.failed(first.candidate, first.profile, "does not build", first.origin),
    ]
    skipped: Counter[str] = Counter()
    one, other = examples_of_records(records, VOCABULARY, skipped)
    assert VOCABULARY.decode(one.prompt) == sentence[:-1]
    assert one.programs == ((_tokens(2, 1), 1.0), (_tokens(4, 1), 1.5))
    assert one.qualities == (0, 2)
    assert len(other.programs) == 1
    assert skipped == {
        "without a sentence": 1,
        "with a damaged sentence": 2,
        "outside of the language": 2,
        "whose sentence is too long": 1,
        "of a program without decisions": 1,
        "of another space version": 1,
        "that failed": 1,
    }


def test_records_read_with_their_spaces_are_the_sentences_of_the_language() -> None:
    space = next(space for space in spaces("x86", 3) if len(space.decisions) > 2)
    generator = random.Random(0)
    drawn = [space.candidate(space.sample(generator), "random") for _ in range(3)]
    records = [
        replace(_record({"vectors": 1}, 1.0 + number, None), candidate=candidate)
        for number, candidate in enumerate(drawn)
    ]
    foreign = replace(records[0], candidate=replace(drawn[0], workload_hash="another"))
    skipped: Counter[str] = Counter()
    spaces_at_hand = {space.task.workload_hash: space}
    [example] = examples_of([*records, foreign], spaces_at_hand, VOCABULARY, skipped)
    assert skipped == {"of a task or rule without a design space": 1}
    words = VOCABULARY.decode([*example.prompt, VOCABULARY.number(quality_token(0)), *example.programs[0][0]])
    sentence = decode(words)
    assert sentence.decisions == drawn[0].decisions
    origin = encode_prompt(sentence.board, sentence.task)
    told = [replace(record, origin={"sentence": origin}) for record in records]
    assert examples_of_records(told, VOCABULARY) == [example]


def test_replay_files_of_elsewhere_and_damaged_ones_are_refused(base: Path, tmp_path: Path) -> None:
    examples = read_replay(base / REPLAY, VOCABULARY)
    assert len(examples) == 30
    again = tmp_path / REPLAY
    write_replay(again, examples, 30, 0, VOCABULARY.version)
    assert again.read_bytes() == (base / REPLAY).read_bytes()
    again.write_bytes(again.read_bytes()[:-40])
    with pytest.raises(TlmError, match="install the package again"):
        read_replay(again, VOCABULARY)
    write_replay(again, examples, 30, 0, "other")
    with pytest.raises(TlmError, match="vocabulary other"):
        read_replay(again, VOCABULARY)
    with pytest.raises(TlmError, match="cannot be read"):
        read_replay(tmp_path / "nothing", VOCABULARY)


@pytest.fixture
def desk(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceProfile:
    """This machine with one thread, its records in the user's store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("EDGETLM_RECORDS", raising=False)
    monkeypatch.setattr(checkpoints, "SHIPPED", base)
    with connect("local") as device:
        return profile_of(device, 1)


def _stored(profile: DeviceProfile, tmp_path: Path) -> None:
    generator = random.Random(4)
    records = []
    for number in range(24):
        for vectors, rows in generator.sample([(v, r) for v in CHOICES for r in CHOICES], 12):
            record = _record(
                {"vectors": vectors, "rows": rows}, _seconds(vectors, rows), list(_prompt(9, number))
            )
            candidate = replace(record.candidate, workload_hash=f"{number}")
            records.append(replace(record, candidate=candidate, profile=profile_data(profile)))
    records.append(replace(records[0], origin={}, made_at="2026-01-01T00:00:00+00:00"))
    records.append(replace(records[0], profile={**profile_data(profile), "threads": 64}, origin={}))
    with RecordStore(tmp_path / "edgetlm" / "records.sqlite") as store:
        assert store.append(records) == len(records)


def test_the_command_makes_the_model_that_the_device_uses(
    base: Path, desk: DeviceProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _stored(desk, tmp_path)
    command = ["tlm", "finetune", "--device", "local", "--threads", "1", "--steps", "40"]
    assert main_command([*command, "--method", "half"]) == 2
    assert main_command([*command, "--method", "full"]) == 0
    said = capsys.readouterr().out
    assert "1 records without a sentence are skipped" in said
    assert "training 40 of 40, loss" in said
    used = checkpoints.model_for(desk)
    assert used != base and str(used) in said
    assert main_command([*command, "--out", str(tmp_path / "elsewhere")]) == 0
    assert checkpoints.accepted(tmp_path / "elsewhere") is not None
    assert checkpoints.model_for(desk) == used
    (used / WEIGHTS).write_bytes(b"damaged")
    capsys.readouterr()
    assert main_command(command) == 1
    said = capsys.readouterr().err
    assert "damaged" in said and said.count("\n") == 1


def test_the_command_without_records_says_what_makes_some(
    desk: DeviceProfile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_command(["tlm", "finetune"]) == 2
    assert "no records there yet" in capsys.readouterr().err
    _stored(replace(desk, threads=3), tmp_path)
    assert main_command(["tlm", "finetune", "--threads", "1"]) == 1
    assert "no programs were measured on local with 1 threads" in capsys.readouterr().err
