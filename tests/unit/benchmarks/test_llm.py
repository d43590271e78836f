"""The benchmark of language models: its figures, its rounds, its processes and its files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.llm import files, several
from benchmarks.llm.__main__ import main
from benchmarks.llm.arithmetic import Arithmetic, multiplies_bytes
from benchmarks.llm.figures import agrees, arithmetic_share, memory_figures
from benchmarks.llm.models import SHAPES, Shape, make
from device_agent.text_engines.edgetlm_engine import Edgetlm, commands
from device_agent.text_engines.gguf_file import Source, Weights, halved, interleaved, sources_of
from device_agent.text_engines.worker import commands_of
from host.compare.text_peers import rounds
from host.compare.text_peers.figures import best_peer, speeds, tokens_of
from host.compare.text_peers.process import EngineProcess, seconds_of
from host.compile.device_profile import profile_of
from host.errors import EngineError
from host.model.text_quality import divergence
from host.transport import connect
from tests import tiny_decoder as tiny
from tests.tiny_bundle import write_tiny

_STUB = "tests.unit.benchmarks.stub_engine"


@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("qwen3", True)])
def test_a_model_has_the_weights_that_its_shape_says(kind: str, tied: bool, tmp_path: Path) -> None:
    shape = Shape(kind, 2, 64, 4, 2, 32, 96, 40, tied)
    make(shape, tmp_path / "model")
    weights = Weights(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert {source.name for source in sources_of(config).values()} == weights.keys()
    matrices = sum(weight.size for weight in weights.values() if weight.ndim == 2)
    norms = sum(weight.size for weight in weights.values() if weight.ndim == 1)
    assert shape.step_elements() == matrices - (0 if tied else 40 * 64)
    read = shape.step_elements() + 64
    assert shape.step_bytes(8) == read + 2 * read // 32 + 4 * norms
    assert shape.step_bytes(4) == read // 2 + 2 * read // 32 + 4 * norms
    # Without scales.
    assert shape.step_bytes(32) == 4 * (read + norms)
    assert config["eos_token_id"] is None


def test_the_sizes_are_those_of_the_names() -> None:
    millions = {name: round(shape.step_elements() / 1e6) for name, shape in SHAPES.items()}
    assert millions == {"0.1b": 110, "0.5b": 596, "1.1b": 1034}


def test_multiply_adds_of_a_prompt() -> None:
    shape = Shape("llama", 3, 64, 4, 2, 16, 96, 40, True)
    keys_and_values, others = 2 * 64 * 32, 2 * 64 * 64 + 3 * 64 * 96
    every_token = 2 * (keys_and_values + others) + keys_and_values
    assert shape.prompt_multiply_adds(10) == 10 * every_token + others + 40 * 64
    # One token needs what a step does.
    assert shape.prompt_multiply_adds(1) == shape.step_elements()


def test_a_loop_over_registers_counts_its_multiply_adds() -> None:
    with connect("local") as device:
        board = profile_of(device, 2).board
    if not multiplies_bytes(board.hardware):
        pytest.skip("this processor adds up no products of bytes")
    # Raises where its sums are not those of so many products.
    loop = Arithmetic(board, 2)
    assert loop.multiply_adds % (2 * 4 * board.hardware.lanes) == 0
    assert loop.rate(0.0) > 0
    # Matrices of bytes are multiplied faster than the loop does.
    assert not multiplies_bytes(replace(board.hardware, byte_matrices=True))


def test_keys_and_values_that_a_step_reads() -> None:
    # 12 heads of 64 in 12 layers, and 8 of 128 in 28, in half precision; beside weights in single, in single.
    assert SHAPES["0.1b"].kept_bytes(1, 4) == 2 * 12 * 12 * 64 * 2
    assert SHAPES["0.5b"].kept_bytes(144, 8) == 144 * 2 * 28 * 8 * 128 * 2
    assert SHAPES["0.1b"].kept_bytes(1, 32) == 2 * 12 * 12 * 64 * 4


def test_rows_of_queries_stand_in_pairs_in_files_of_llama() -> None:
    rows = np.arange(16, dtype=np.float32).reshape(8, 2)
    changed = interleaved(rows, 2)
    assert changed[:, 0].tolist() == [0, 4, 2, 6, 8, 12, 10, 14]
    assert (halved(changed, 2) == rows).all()
    config = {"model_type": "llama", "tie_word_embeddings": False, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    found = sources_of(config)
    assert found["output.weight"] == Source("lm_head.weight")
    assert found["blk.0.attn_q.weight"] == Source("model.layers.0.self_attn.q_proj.weight", 4)
    assert found["blk.0.attn_k.weight"].heads == 2 and found["blk.0.attn_v.weight"].heads == 0
    found = sources_of({**config, "model_type": "qwen3", "tie_word_embeddings": True})
    assert "output.weight" not in found and "blk.0.attn_k_norm.weight" in found
    assert not any(source.heads for source in found.values())


def test_the_divergence_of_distributions() -> None:
    half, quarter = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence(half, quarter) == pytest.approx(expected)
    assert divergence(np.vstack([half, half]), np.vstack([quarter, half + 7.0])) == pytest.approx(
        expected / 2
    )
    with pytest.raises(ValueError, match="beside"):
        divergence(half, quarter[0])
    with pytest.raises(ValueError, match="not finite"):
        divergence(half, half * np.nan)


def test_an_engine_agrees_where_it_takes_the_likeliest_tokens() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 100))
    likeliest = logits.argmax(axis=-1).tolist()
    assert agrees(logits, likeliest)
    other = [*likeliest[:2], int(np.argsort(logits[2])[-10])]
    assert not agrees(logits, other)
    logits[2, other[2]] = logits[2].max() - 1e-3
    assert agrees(logits, other)


def test_speeds_beside_the_best_peer() -> None:
    seconds = {"edgetlm": [1.0, 2.0, 4.0], "slow": [4.0, 8.0, 16.0], "fast": [2.0, 4.0, 8.0]}
    found = speeds({"decode": seconds, "prefill": {"edgetlm": [0.5]}}, {"decode": 32, "prefill": 512})
    assert found["decode_tokens_s"] == {"edgetlm": 16.0, "slow": 4.0, "fast": 8.0}
    assert found["prefill_tokens_s"] == {"edgetlm": 1024.0}
    assert found["best_peer"] == {"decode": "fast"}
    assert found["speedup"] == {"decode": pytest.approx(2.0)}
    assert found["bounds"] == {"decode": [pytest.approx(2.0), pytest.approx(2.0)]}
    assert best_peer({"edgetlm": [1.0]}) is None


def test_texts_have_no_beginning_in_common() -> None:
    texts = [tokens_of(seed, 8, 50) for seed in range(10)]
    assert len({text[0] for text in texts}) == 10
    assert texts[3] == tokens_of(3, 8, 50) and all(0 <= token < 50 for text in texts for token in text)


class Recorded:
    """An engine that only notes what it is asked."""

    def __init__(self, name: str, calls: list[tuple[str, str, dict[str, Any]]], step_s: float) -> None:
        self.name, self.peak_bytes = name, 5_000_000
        self._calls, self._step_s, self.closed = calls, step_s, False

    def close(self) -> None:
        self.closed = True

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._calls.append((self.name, command, arguments))
        tokens = len(arguments.get("tokens", ())) if command == "prompt" else arguments.get("count", 1)
        return {"seconds": self._step_s * tokens, "bytes_per_s": 1e9}

    watched = ask


@pytest.mark.parametrize(("context", "kinds"), [(1024, ["decode"]), (2048, ["decode", "decode_long"])])
def test_engines_work_in_turn(context: int, kinds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PAUSE_S", 0.0)
    calls: list[Any] = []
    between: list[str] = []
    engines = {"edgetlm": Recorded("edgetlm", calls, 0.01), "peer": Recorded("peer", calls, 0.02)}
    plan = rounds.Plan(1000, context, 2)
    paths = {"edgetlm": "bundle", "peer": "file"}
    measured = rounds.measure(engines, paths, plan, 2, between.append)
    assert list(measured.seconds) == ["prefill", *kinds]
    assert measured.seconds["prefill"] == {
        "edgetlm": [pytest.approx(5.12)] * 2,
        "peer": [pytest.approx(10.24)] * 2,
    }
    assert measured.first_token_s == {"edgetlm": pytest.approx(5.13), "peer": pytest.approx(10.26)}
    loads = [arguments for _, command, arguments in calls if command == "load"]
    assert loads == [{"path": path, "threads": 2, "context": context} for path in ("bundle", "file")]
    prompts = [(name, arguments["tokens"]) for name, command, arguments in calls if command == "prompt"]
    assert [name for name, _ in prompts[-4:]] == ["edgetlm", "peer", "peer", "edgetlm"]
    ours = [tokens[0] for name, tokens in prompts if name == "edgetlm"]
    assert len(set(ours)) == len(ours) == 4
    behind = [len(arguments["tokens"]) for _, command, arguments in calls if command == "decode"]
    assert set(behind) == ({128} if context == 1024 else {128, 1984})
    assert between == [kind for kind in ("prefill", *kinds) for _ in range(2)]
    # 512 tokens in 5.12 s, of a million multiply-adds each.
    assert arithmetic_share(measured, 512_000_000, 2e8) == pytest.approx(0.5)
    # 32 tokens in 0.32 s, 100 a second, of a million bytes each.
    read = {"one place": [1e8, 9e8, 2e8], "two": [1e9, 1e9, 1e8]}
    found = memory_figures(measured, plan.decoded, 1_000_000, 500_000, read)
    assert found["bandwidth_share"] == pytest.approx(0.1)
    assert found["bandwidth_share_with_cache"] == pytest.approx(0.15)
    # Of the loop that is the fastest in most rounds.
    assert (found["read_loop"], found["read_bytes_s"]) == ("two", 1e9)
    assert found["read_loops"] == {"one place": 2e8, "two": 1e9}
    # Bytes of other peers are not known; reading alone takes 1 ms of their 20.
    assert found["peer_bandwidth_share"] == {} and found["decode_ceiling"] == pytest.approx(20.0)
    times = measured.seconds["decode"] | {"llama.cpp": [0.8, 0.8]}
    found = memory_figures(replace(measured, seconds={"decode": times}), plan.decoded, 1_000_000, 0, read)
    assert found["peer_bandwidth_share"] == {"llama.cpp": pytest.approx(0.04)}
    assert rounds.peaks_mb(engines) == {"edgetlm": 5.0, "peer": 5.0}


def test_a_peer_that_cannot_start_is_left_out_and_ours_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PAUSE_S", 0.0)
    calls: list[Any] = []
    broken = Recorded("peer", calls, 0.1)
    monkeypatch.setattr(broken, "ask", lambda command, **arguments: fail("peer: the process ended with -11"))
    engines = {"edgetlm": Recorded("edgetlm", calls, 0.1), "peer": broken}
    plan, paths = rounds.Plan(1000, 1024, 1), {"edgetlm": "bundle", "peer": "file"}
    measured = rounds.measure(engines, paths, plan, 1)
    assert measured.failed == {"peer": "peer: the process ended with -11"}
    assert measured.seconds["decode"].keys() == measured.first_token_s.keys() == {"edgetlm"}
    monkeypatch.setattr(broken, "name", "edgetlm")
    with pytest.raises(EngineError, match="ended with -11"):
        rounds.measure({"edgetlm": broken}, paths, plan, 1)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_a_peer_that_fails_late_is_left_out_and_ended(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PAUSE_S", 0.0)
    calls: list[Any] = []
    late, peer = Recorded("late", calls, 0.1), Recorded("peer", calls, 0.1)

    def ask(command: str, **arguments: Any) -> dict[str, Any]:
        if sum(name == "late" for name, _, _ in calls) == count:
            fail("late: no memory")
        return Recorded.ask(late, command, **arguments)

    monkeypatch.setattr(late, "ask", ask)
    monkeypatch.setattr(late, "watched", ask)
    engines = {"edgetlm": Recorded("edgetlm", calls, 0.1), "late": late, "peer": peer}
    measured = rounds.measure(engines, dict.fromkeys(engines, "file"), rounds.Plan(1000, 1024, 2), 1)
    assert measured.failed == {"late": "late: no memory"} and late.closed and not peer.closed
    assert measured.first_token_s.keys() == {"edgetlm", "peer"}
    for times in measured.seconds.values():
        assert {name: len(one) for name, one in times.items()} == {"edgetlm": 2, "peer": 2}


def fail(reason: str) -> None:
    raise EngineError(reason)


def test_a_process_answers_and_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with EngineProcess("stub", _STUB, 1) as process:
        assert process.ask("add", first=1, second=2) == {"sum": 3}
        assert process.watched("add", first=2, second=2) == {"sum": 4}
        assert process.peak_bytes > 1_000_000
        with pytest.raises(EngineError, match="stub: refuse: ValueError: no such model"):
            process.ask("refuse")
        assert process.ask("add", first=3, second=2) == {"sum": 5}
        with pytest.raises(EngineError, match="ended with 3 during crash: a last word"):
            process.ask("crash")
    monkeypatch.setattr("host.compare.text_peers.process.TIME_LIMIT_S", 0.1)
    with (
        EngineProcess("stub", _STUB, 1) as process,
        pytest.raises(EngineError, match="wait took more than 0 s"),
    ):
        process.ask("wait")


@pytest.mark.parametrize("said", [b"Segmentation", b"[1]", b"", b"\xff\xfe", b"[" * 40_000])
def test_what_is_no_answer_is_an_error_of_the_engine(said: bytes) -> None:
    with (
        EngineProcess("stub", _STUB, 1, arguments=[said.hex()]) as process,
        pytest.raises(EngineError, match="stub: add: not an answer: "),
    ):
        process.ask("add", first=1, second=2)
    process.close()


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, "1", True, float("nan"), float("inf")])
def test_a_time_is_above_zero(seconds: object) -> None:
    with pytest.raises(EngineError, match="stub: load: it says no time above 0"):
        seconds_of("stub", "load", {} if seconds is None else {"seconds": seconds})
    assert seconds_of("stub", "load", {"seconds": 2}) == 2.0


def test_an_interpreter_that_cannot_be_started_is_an_error_of_the_engine(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("no program")
    for path in (tmp_path / "missing", tmp_path / "python", tmp_path):
        with pytest.raises(EngineError, match=r"^stub: .* cannot be started .*: give an interpreter$"):
            EngineProcess("stub", _STUB, 1, str(path))


@pytest.mark.filterwarnings("ignore:.*is loaded without trust")
def test_our_engine_answers_the_commands(tmp_path: Path) -> None:
    commands = commands_of(Edgetlm())
    commands["load"](path=str(write_tiny(tmp_path)), threads=1, context=tiny.CONTEXT)
    text = [3, 1, 4, 1, 5, 9]
    assert commands["prompt"](tokens=text)["token"] == tiny.next_token(text)
    with pytest.raises(ValueError, match="5 tokens of the prompt were there before"):
        commands["prompt"](tokens=text)
    expected = list(text)
    for _ in range(4):
        expected.append(tiny.next_token(expected))
    for _ in range(2):
        answer = commands["decode"](tokens=text, count=3)
        assert answer["tokens"] == expected[len(text) :] and answer["seconds"] > 0.0
    commands["logits"](tokens=text, path=str(tmp_path / "logits.npy"))
    rows = np.load(tmp_path / "logits.npy")
    assert rows.argmax(axis=-1).tolist() == [tiny.next_token(text[: end + 1]) for end in range(len(text))]


@pytest.mark.filterwarnings("ignore:.*is loaded without trust")
def test_several_texts_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several_texts = commands()
    several_texts["load"](path=str(write_tiny(tmp_path, several=True)), threads=1, context=tiny.CONTEXT)
    texts = [[3, 1, 4], [7, 3], [9, 2, 6]]
    answer = several_texts["decode_many"](texts=texts, count=3)
    assert answer["tokens"] == [tiny.following(text, 4) for text in texts] and answer["seconds"] > 0.0
    monkeypatch.setattr(several, "PAUSE_S", 0.0)
    calls: list[Any] = []
    engines = {"1": Recorded("one", calls, 0.5 / 32), "2": Recorded("two", calls, 0.8 / 32)}
    seconds = several.measure(engines, 1000, 3)
    assert seconds == {"1": [0.5] * 3, "2": [0.8] * 3}
    found = several.figures(seconds)
    assert found["decode_tokens_s_several"] == {"1": 64.0, "2": 80.0}
    assert found["speedup_several"]["2"][0] == pytest.approx(1.25)


def test_files_are_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def deployment(model: Path, bundle: Path, **options: Any) -> dict[str, Any]:
        made.append(options)
        bundle.mkdir()
        return {"verified": True, "deploy_s": float(len(made))}

    monkeypatch.setattr(files, "deployed", deployment)
    kept = files.Files(tmp_path, "0.1b", "int4")
    first, entry = kept.bundle(tmp_path, threads=1, context=64)
    assert kept.bundle(tmp_path, threads=1, context=64) == (first, entry) and len(made) == 1
    assert entry["verified"] and "deploy_commit" in entry
    others = {kept.bundle(tmp_path, threads=2, context=64)[0]}
    others.add(kept.bundle(tmp_path, threads=1, context=64, sequences=2)[0])
    others.add(files.Files(tmp_path, "0.1b", "int8").bundle(tmp_path, threads=1, context=64)[0])
    assert len(others | {first}) == len(made) == 4
    # A bundle whose deployment was interrupted is none.
    first.with_suffix(".json").unlink()
    assert kept.bundle(tmp_path, threads=1, context=64)[1]["deploy_s"] == 5.0

    def interrupted(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        kept.of_peer("a.gguf", interrupted)
    assert kept.of_peer("a.gguf", lambda path: path.mkdir()).is_dir()
    assert kept.of_peer("a.gguf", interrupted).name == "a.gguf"


def test_unknown_models_and_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, reason in (
        (["--configs", "7b"], "no 7b; there are 0.1b"),
        (["--peers", "x"], "no x; there"),
        (["--prepare"], "--prepare needs --files-dir"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert reason in capsys.readouterr().err
