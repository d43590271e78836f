"""A language model beside other engines: which are measured, with which files, and what is said of them."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.compare.backends import Choice
from host.compare.text_peers import comparison, rounds
from host.compare.text_peers.comparison import PeerFiles, compare_texts
from host.compare.text_peers.onnx_file import builder_of
from host.compare.text_peers.peers import PEERS, TextPeer, interpreter_of
from host.compare.text_peers.process import EngineProcess
from host.deploy import DeployOptions, texts
from host.deploy.figures import text_comparison
from host.engines import check_interpreters, text_engines
from host.errors import EngineError, UserError
from host.model import BOARD, EMULATOR, TimingPolicy
from host.model.text_comparison import EngineTexts, TextComparison
from host.progress import Silence, StageClock
from host.statistics import Estimate
from sdk.report.compared import compared_text, headline
from sdk.report.figures import deploy_json
from sdk.report.html import render
from sdk.report.quantisation.language_model import peer_lines
from tests.unit.compare.samples import result
from tests.unit.compare.stub_text_engine import VOCABULARY

_STUB = "tests.unit.compare.stub_text_engine"
_HERE = {name: Path(sys.executable) for name in PEERS}


def _compared(low: float = 1.8, high: float = 2.0) -> TextComparison:
    ours = EngineTexts("edgetlm", "1", {"decode": 100.0, "prefill": 900.0}, {}, 100_000_000, 0.5)
    speed = {"decode": Estimate((low + high) / 2, low, high, 7), "prefill": Estimate(2.5, 2.4, 2.6, 7)}
    fast = replace(ours, engine="llama.cpp", speedup=speed, divergence=0.01)
    fast = replace(fast, tokens_s={"decode": 50.0, "prefill": 400.0})
    slow = replace(fast, engine="openvino-genai", tokens_s={"decode": 40.0, "prefill": 300.0})
    behind = {"decode": 128}
    return TextComparison(
        ours, (slow, fast), {"decode": 32, "prefill": 512}, behind, 7, {"x": "x: not there"}
    )


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = {
        "llama.cpp": TextPeer("llama.cpp", _STUB, "stub", ("0.5",)),
        "openvino-genai": TextPeer("openvino-genai", _STUB, "stub", ("0", "refuses")),
    }
    monkeypatch.setattr(comparison, "PEERS", peers)
    monkeypatch.setattr(comparison, "_ROUNDS", 3)
    monkeypatch.setattr(rounds, "PAUSE_S", 0.0)

    def process(
        name: str, module: str, threads: int, python: str = sys.executable, arguments: Any = ()
    ) -> Any:
        return comparison_process(name, _STUB, threads, python, arguments or ("0",))

    comparison_process = EngineProcess
    monkeypatch.setattr(comparison, "EngineProcess", process)


def test_engines_are_measured_in_turn_with_files_of_the_same_bits(stubs: None, tmp_path: Path) -> None:
    model, said = tmp_path / "model", list[str]()
    model.mkdir()
    files = PeerFiles(model, 4, {}, _HERE)
    names = ["openvino-genai", "llama.cpp"]
    found = compare_texts(
        tmp_path, names, files, vocabulary=VOCABULARY, context=64, threads=1, note=said.append
    )
    assert found is not None and [one.engine for one in found.peers] == ["llama.cpp"]
    assert found.missing == {"openvino-genai": "openvino-genai: load: ValueError: no such model"}
    assert said == [f"a peer is left out: {found.missing['openvino-genai']}"]
    assert found.tokens == {"prefill": 32, "decode": 16} and found.behind == {"decode": 16}
    [peer] = found.peers
    assert peer.speedup.keys() == {"prefill", "decode"} and peer.speedup["decode"].bounded
    assert peer.version == "stub 1" and peer.peak_memory_bytes > 1_000_000 and peer.first_token_s > 0.0
    # Their logits differ by a half in one place.
    assert peer.divergence is not None and 1e-4 < peer.divergence < 0.1
    assert found.ours.divergence is None and found.ours.speedup == {}
    whole = json.loads(json.dumps(text_comparison(found)))
    assert [one["engine"] for one in whole["engines"]] == ["edgetlm", "llama.cpp"]


@pytest.mark.parametrize(
    ("arguments", "python", "said"),
    [
        (("0", "wide"), sys.executable, r"logits \[24, 51\] beside \[24, 50\]"),
        (("nan",), sys.executable, "some are no finite numbers"),
        (("0",), "missing/python", "missing/python cannot be started"),
    ],
)
def test_a_peer_that_fails_behind_the_measurements_is_left_out(
    stubs: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    python: str,
    said: str,
) -> None:
    given = tmp_path / "model.gguf"
    given.write_text("x")
    good, bad = (
        TextPeer("llama.cpp", _STUB, "stub", ("0.5",)),
        TextPeer("openvino-genai", _STUB, "stub", arguments),
    )
    monkeypatch.setattr(comparison, "PEERS", {one.name: one for one in (good, bad)})
    names, notes = [bad.name, good.name], list[str]()
    files = PeerFiles(tmp_path, 4, dict.fromkeys(names, given), {**_HERE, bad.name: Path(python)})
    found = compare_texts(
        tmp_path, names, files, vocabulary=VOCABULARY, context=64, threads=1, note=notes.append
    )
    assert found is not None and [one.engine for one in found.peers] == ["llama.cpp"]
    assert list(found.missing) == [bad.name] and re.search(said, found.missing[bad.name])
    assert notes == [f"a peer is left out: {found.missing[bad.name]}"]


def test_what_is_given_serves_every_engine_of_the_package(tmp_path: Path) -> None:
    python, file = tmp_path / "python", tmp_path / "model.gguf"
    plain, other = PEERS["llama.cpp"], PEERS["llama.cpp-no-flash"]
    assert (
        interpreter_of(other, {"llama.cpp": python}) == interpreter_of(plain, {other.name: python}) == python
    )
    assert interpreter_of(other, {"llama.cpp": file, other.name: python}) == python
    assert PeerFiles(tmp_path, 4, {"llama.cpp": file}, {"llama.cpp": python}).of(other.name, tmp_path) == (
        python,
        file,
    )
    check_interpreters(["llama.cpp"], [other.name])
    check_interpreters(["openvino-genai"], None)
    with pytest.raises(
        UserError, match=r"^--peer-python openvino: use llama\.cpp, llama\.cpp-no-flash, onnx"
    ):
        check_interpreters(["openvino"], None)
    with pytest.raises(
        UserError, match=r"^--peer-python llama\.cpp: it is not measured: add --peer llama\.cpp"
    ):
        check_interpreters(["llama.cpp"], ["openvino-genai"])


@pytest.mark.parametrize("place", ["lib/python3/dist-packages", "somewhere"])
def test_the_model_builder_is_where_the_interpreter_finds_it(place: str, tmp_path: Path) -> None:
    package = tmp_path / place / "onnxruntime_genai"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / place} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ValueError, match="onnxruntime_genai with its model builder is not installed"):
        builder_of(str(python))
    (package / "models" / "builder.py").write_text("")
    assert builder_of(str(python)) == package / "models" / "builder.py"
    with pytest.raises(ValueError, match="cannot be asked"):
        builder_of(str(tmp_path / "missing"))


def test_an_interpreter_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    found = interpreter_of(PEERS["llama.cpp"], {"llama.cpp": Path("bin/python")})
    assert found == tmp_path / "bin" / "python"  # not what the link leads to


def test_nothing_is_measured_where_no_peer_is(stubs: None, tmp_path: Path) -> None:
    said: list[str] = []
    files = PeerFiles(tmp_path, 4, {}, {})
    found = compare_texts(
        tmp_path, ["llama.cpp"], files, vocabulary=9, context=64, threads=1, note=said.append
    )
    assert found is None
    assert said == [
        "a peer is left out: llama.cpp is not installed (no module llama_cpp): install it, or give the "
        "interpreter of another environment with --peer-python llama.cpp=PATH"
    ]


def test_a_file_is_the_users_or_the_model_itself_or_written(stubs: None, tmp_path: Path) -> None:
    gguf, folder = tmp_path / "model.gguf", tmp_path / "model"
    gguf.write_text("x")
    folder.mkdir()
    given = PeerFiles(folder, 0, {"llama.cpp": gguf}, _HERE)
    assert given.of("llama.cpp", tmp_path)[1] == gguf
    assert PeerFiles(gguf, 0, {}, _HERE).of("llama.cpp", tmp_path)[1] == gguf
    with pytest.raises(EngineError, match=r"quantised already: give one with --peer-file llama\.cpp=PATH"):
        PeerFiles(folder, 0, {}, _HERE).of("llama.cpp", tmp_path)
    with pytest.raises(EngineError, match="no file with weights of 16 bits is written"):
        PeerFiles(folder, 16, {}, _HERE).of("llama.cpp", tmp_path)


def _asked(
    options: DeployOptions, timing: TimingPolicy, monkeypatch: pytest.MonkeyPatch, *on_processor: bool
) -> Any:
    """The names and files that are compared, and the notes."""
    found: list[Any] = []
    decoder = SimpleNamespace(vocabulary=9, context=64)
    monkeypatch.setattr(
        texts, "bundle", SimpleNamespace(read_manifest=lambda path: SimpleNamespace(decoder=decoder))
    )
    monkeypatch.setattr(
        texts, "compare_texts", lambda path, names, files, **how: found.append((names, files))
    )
    clock = StageClock(Silence())
    said: list[str] = []
    monkeypatch.setattr(clock.progress, "note", said.append, raising=False)
    device = cast(Any, SimpleNamespace(timing=timing))
    texts.compared_texts("transformers", options, Path(), 1, device, clock, *on_processor)
    return found, said


def test_peers_are_those_asked_for_or_those_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = DeployOptions(model=tmp_path, quantize="int4", peers=("onnxruntime", "llama.cpp"))
    found, said = _asked(options, BOARD, monkeypatch)
    assert [(names, files.bits) for names, files in found] == [(["llama.cpp"], 4)] and not said
    monkeypatch.setattr(texts, "unavailable", lambda name: None if name == "llama.cpp" else "no")
    found, _ = _asked(replace(options, peers=None, quantize="", dtype="fp16"), BOARD, monkeypatch)
    assert [(names, files.bits) for names, files in found] == [(["llama.cpp"], 16)]
    assert _asked(replace(options, peers=("onnxruntime",)), BOARD, monkeypatch) == ([], [])
    for elsewhere, timing in ((replace(options, device="orin"), BOARD), (options, EMULATOR)):
        found, said = _asked(elsewhere, timing, monkeypatch)
        assert not found and said == [
            "llama.cpp: measured on this machine alone, with --device local; left out"
        ]
    found, said = _asked(options, BOARD, monkeypatch, False)
    assert not found and said == ["llama.cpp: measured beside a bundle for the processor; left out on a GPU"]
    assert _asked(replace(options, peers=None), BOARD, monkeypatch, False) == ([], [])
    (tmp_path / "config.json").write_text('{"quantization_config": {}}')
    found, _ = _asked(replace(options, quantize=""), BOARD, monkeypatch)
    assert found[0][1].bits == 0


def test_every_engine_of_texts_is_a_peer() -> None:
    assert set(text_engines()) == PEERS.keys()


def test_the_choice_says_which_is_faster() -> None:
    choice = Choice("tvm", "the only verified backend for this format")
    assert texts.with_texts(choice, None) is choice
    assert texts.with_texts(choice, _compared()).why.endswith(
        "; in decoding tvm faster: llama.cpp / tvm = 1.90, 95% bound 1.80 to 2.00"
    )
    assert "llama.cpp faster, which no bundle holds" in texts.with_texts(choice, _compared(0.5, 0.9)).why
    assert "no difference shown" in texts.with_texts(choice, _compared(0.9, 1.1)).why


def test_page_terminal_and_json_have_the_peers() -> None:
    one = replace(result(), ratios={}, beside=_compared(), context=64)
    said = (
        "1.90 (1.80 to 2.00) times as fast as llama.cpp in writing and 2.50 (2.40 to 2.60) times as fast as "
        "llama.cpp in reading a prompt"
    )
    assert compared_text(one) == said and headline(one).startswith(said)
    page = render(one)
    assert "Beside other engines" in page and "ours is 1.90 times as fast, 1.80 to 2.00" in page
    assert "Left out: x: not there." in page
    assert [line.split()[0] for line in peer_lines(_compared())] == ["edgetlm", "openvino-genai", "llama.cpp"]
    assert "0.01 nats from ours" in peer_lines(_compared())[2]
    assert deploy_json(one)["text_peers"]["engines"][2]["speedup"]["decode"]["low"] == 1.8
