"""`sdk chat`, and texts of a language model by the Python API."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

import sdk
from device_agent.contract.language.chat_templates import check_chat
from host import bundle as bundles
from host.errors import BundleError, DeviceError, EngineError, ModelFileError, UserError
from sdk.cli.console import print_piece
from sdk.cli.main import main
from tests.signing import reseal
from tests.tiny_bundle import write_tiny
from tests.tiny_decoder import following
from tests.tiny_tokenizer import WORDS, write_tokenizer


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return write_tiny(folder, write_tokenizer(folder / "words.json"))


# A word for each role, and what was said; "eleven" begins an answer.
TEMPLATE = """{% set words = {'system': 'nine', 'user': 'ten', 'assistant': bos_token} %}
{% for message in messages %}{{ words[message.role] }} {{ message.content }} {% endfor %}
{% if short %}{{ raise_exception('no\x1b way') }}{% endif %}{{ bos_token }}
"""


@pytest.fixture(scope="session")
def talking_bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("talking")
    templates = {"default": TEMPLATE, "bare": "{{ messages[-1].content }}"}
    chat = check_chat(templates, {"bos_token": "eleven"}).content()
    return write_tiny(folder, write_tokenizer(folder / "words.json"), chat=chat)


def text(tokens):
    return " ".join(WORDS[token] for token in tokens)


def test_a_prompt_is_continued_and_its_speed_shown(tiny_bundle, capsys):
    words = ["chat", str(tiny_bundle), "--prompt", text([3, 1, 4]), "--max-tokens", "4"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == text(following([3, 1, 4], 4)).split()
    assert out[1].startswith("[4 tokens, ") and " tokens/s, first token after " in out[1]
    assert out[1].endswith("; max_tokens]")


def test_each_line_of_the_input_is_a_prompt(tiny_bundle, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text([3, 1])}\n\n{text([3, 1, 4])}"))
    assert main(["chat", str(tiny_bundle), "--max-tokens", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split() for line in out[::2]] == [
        text(following(prompt, 2)).split() for prompt in ([3, 1], [3, 1, 4])
    ]


@pytest.mark.parametrize("talks", [False, True])
def test_a_line_that_is_no_utf_8_is_one_line(talks, tiny_bundle, talking_bundle, capsys, monkeypatch):
    """As the keyboard of another encoding, or a file, may give it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))
    assert main(["chat", str(talking_bundle if talks else tiny_bundle)]) == 2
    assert capsys.readouterr().err == "error: the prompt is not UTF-8: give it in UTF-8\n"


def test_a_process_that_ends_in_the_middle_of_an_answer_is_one_line(tiny_bundle, monkeypatch):
    with sdk.load_language_model(tiny_bundle) as model:
        model._process.stdout.close()
        monkeypatch.setattr(model._process, "stdout", io.StringIO('{"pie'))
        with pytest.raises(EngineError, match=r"the process of the model ended .*: load it again"):
            list(model.generate("one"))


def test_lines_are_turns_of_a_conversation(talking_bundle, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text([3, 1])}\n{text([6])}\n"))
    words = ["chat", str(talking_bundle), "--system", text([1, 2]), "--max-tokens", "2"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    first = [9, 1, 2, 10, 3, 1, 11]
    answer = following(first, 2)
    second = [*first, *answer, 10, 6, 11]
    assert [line.split() for line in out[::2]] == [
        text(answer).split(),
        text(following(second, 2)).split(),
    ]
    assert "(7 tokens of prompt)" in out[1]
    assert "(12 tokens of prompt, 8 of them computed before)" in out[3]


def test_a_text_is_continued_without_the_template_where_that_is_wanted(talking_bundle, capsys):
    words = ["chat", str(talking_bundle), "--prompt", text([3, 1, 4]), "--max-tokens", "3"]
    for more in (["--raw"], ["--template", "bare"]):
        assert main([*words, *more]) == 0
        assert capsys.readouterr().out.splitlines()[0].split() == text(following([3, 1, 4], 3)).split()
    stop = text(following([3, 1, 4], 3)).split()[1]
    assert main([*words, "--raw", "--stop", "zz", "--stop", stop]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == text(following([3, 1, 4], 1)).split() and out[1].endswith("; stop string]")


def test_a_turn_that_does_not_fit_is_not_kept(talking_bundle, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(f"{'one ' * 33}\n{text([3, 1])}\n"))
    assert main(["chat", str(talking_bundle), "--max-tokens", "2"]) == 0
    out, error = capsys.readouterr()
    assert error.startswith("error: the conversation has 35 tokens, the model has a context of 32: begin")
    assert error.count("\n") == 1 and text(following([10, 3, 1, 11], 2)) in out


def test_conversations_by_the_python_api(talking_bundle, tiny_bundle):
    messages = [{"role": "user", "content": text([3, 1])}]
    with sdk.load_language_model(talking_bundle) as model:
        assert model.chat_templates == ("bare", "default")
        answer = "".join(model.chat(messages, max_tokens=4))
        assert answer.split() == text(following([10, 3, 1, 11], 4)).split()
        stop = answer.split()[2]
        assert "".join(model.chat(messages, max_tokens=4, stop=[stop])) == answer[: answer.index(stop)]
        assert model.stopped == "stop string"
        with pytest.raises(UserError, match="the model's chat template fails: no"):
            model.chat(messages, variables={"short": True})
        assert "".join(model.chat(messages, max_tokens=4)) == answer
    with sdk.load_language_model(tiny_bundle) as model:
        assert model.chat_templates == ()
        with pytest.raises(UserError, match="has no chat template"):
            model.chat(messages)


def test_messages_that_are_no_json_leave_the_model_as_it_is(talking_bundle):
    message = {"role": "user", "content": text([3, 1])}
    around: dict[str, object] = {**message}
    around["of"] = around
    with sdk.load_language_model(talking_bundle) as model:
        for wrong in ({**message, "content": {"s"}}, around):
            with pytest.raises(UserError, match="what is given is no JSON"):
                model.chat([wrong], max_tokens=1)
        assert list(model.chat([message], max_tokens=1))


def test_a_bad_line_at_a_terminal_does_not_end_the_chat(tiny_bundle, tmp_path, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    lines, kept = f"{'one ' * 33}\n{text([3, 1])}\n", tmp_path / "new" / "kept"
    monkeypatch.setattr(sys, "stdin", Terminal(lines))
    assert main(["chat", str(tiny_bundle), "--max-tokens", "2", "--save", str(kept)]) == 0
    out, error = capsys.readouterr()
    assert error.startswith("error: the prompt has 33 tokens") and error.count("\n") == 1
    assert text(following([3, 1], 2)) in out and kept.is_file()
    # A program that writes the lines sees that one was refused.
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["chat", str(tiny_bundle), "--max-tokens", "2"]) == 2


def test_a_place_that_cannot_be_saved_to_is_refused_before_the_text(tiny_bundle, tmp_path, capsys):
    words = ["chat", str(tiny_bundle), "--prompt", "one", "--save", str(tmp_path)]
    assert main(words) == 2
    out, error = capsys.readouterr()
    assert out == "" and error == f"error: {tmp_path} is a folder: name a file in it with --save\n"


def test_the_same_seed_gives_the_same_text(tiny_bundle, capsys):
    def drawn(seed):
        words = ["chat", str(tiny_bundle), "--prompt", "one two", "--temperature", "3", "--seed", str(seed)]
        assert main([*words, "--max-tokens", "6"]) == 0
        return capsys.readouterr().out.splitlines()[0]

    first = drawn(1)
    assert drawn(1) == first
    assert len({first, drawn(2), drawn(3), drawn(4)}) > 1


def test_texts_by_the_python_api(tiny_bundle, tmp_path):
    archive = tmp_path / "tiny.zip"
    bundles.pack(tiny_bundle, archive)
    with sdk.load_language_model(archive) as model:
        left = model.generate([3, 1, 4], max_tokens=6)
        assert next(left) == following([3, 1, 4], 1)[0]
        # Left in the middle, and another one begun.
        assert list(model.generate([2, 7, 1], max_tokens=3)) == following([2, 7, 1], 3)
        assert model.stopped == "max_tokens" and model.timing.tokens == 3
        with pytest.raises(UserError, match="token 13 is not of the model's vocabulary"):
            model.generate([13])
        with pytest.raises(UserError, match="the prompt has 33 tokens, the model has a context of 32"):
            model.generate([1] * 33)
        assert list(model.generate([2, 7, 1], max_tokens=1)) == following([2, 7, 1], 1)
    with pytest.raises(EngineError, match="the process of the model ended"):
        model.generate([1])


def test_an_installed_model_goes_by_its_name(tiny_bundle, capsys):
    with sdk.connect() as device:
        device.install(tiny_bundle, "tiny")
    assert main(["chat", "tiny", "--prompt", text([3, 1, 4]), "--max-tokens", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == text(following([3, 1, 4], 2)).split()


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["nowhere"], 2, "no such bundle"),
        (["BUNDLE", "--device", "pi5", "--prompt", "one"], 2, "no device is called 'pi5'"),
        (["nowhere", "--device", "pi5", "--prompt", "one"], 2, "no such bundle: nowhere: give its folder"),
        (["BUNDLE", "--prompt", ""], 2, "the prompt is empty"),
        (["BUNDLE", "--prompt", "one", "--temperature", "-1"], 2, "Invalid value for '--temperature'"),
        (["BUNDLE", "--prompt", "one " * 33], 2, "the prompt has 33 tokens"),
        (["BUNDLE", "--prompt", "one", "--stop", ""], 2, "a stop string is empty"),
        (["BUNDLE", "--system", "one"], 2, "--system is for a chat template, and "),
        (["BUNDLE", "--template", "one"], 2, " has no chat template: leave one of them out"),
        (["TALKING", "--raw", "--set", "a=1"], 2, "--set is for a chat template, and --raw is given"),
        (["TALKING", "--set", "a"], 2, "--set a: give NAME=VALUE"),
        (["TALKING", "--prompt", "one", "--set", "short=true"], 2, "template fails: no\\x1b way: correct"),
        (["TALKING", "--prompt", "one", "--template", "x"], 2, "name one of bare, default"),
    ],
)
def test_mistakes_are_one_line(tiny_bundle, talking_bundle, capsys, words, code, reason):
    bundles_by_name = {"BUNDLE": str(tiny_bundle), "TALKING": str(talking_bundle)}
    assert main(["chat", *(bundles_by_name.get(word, word) for word in words)]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_damaged_bundle_is_refused(tiny_bundle, tmp_path):
    archive = tmp_path / "tiny.zip"
    bundles.pack(tiny_bundle, archive)
    copy = bundles.unpacked(archive, tmp_path / "copy")
    (copy / "params.bin").write_bytes(b"\0\0\0\0")
    with pytest.raises(BundleError, match=r"params\.bin"):
        sdk.load_language_model(copy)


def test_other_bundles_are_for_another_command(tiny_bundle, tmp_path):
    with pytest.raises(ModelFileError, match="it is not a bundle"):
        sdk.load_language_model(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(tiny_bundle, other)
    reseal(other, decoder=None)
    with pytest.raises(UserError, match="use sdk run"):
        sdk.load_language_model(other)


def test_what_a_model_writes_moves_no_cursor(capsys):
    print_piece("a\x1b[2Jb\u202e\n c")
    assert capsys.readouterr().out == "a\\x1b[2Jb\\u202e\n c"


def test_a_model_whose_process_is_gone_says_so(tiny_bundle):
    with sdk.load_language_model(tiny_bundle) as model:
        os.kill(model._process.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="the process of the model ended"):
            list(model.generate([1], max_tokens=2))


def test_a_prompt_is_saved_and_continued_by_another_process(tiny_bundle, tmp_path, capsys):
    kept, prompt = tmp_path / "kept", [3, 1, 4, 1, 5]
    words = ["chat", str(tiny_bundle), "--max-tokens", "1", "--prompt"]
    assert main([*words, text(prompt), "--save", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"[5 tokens in {kept}]"
    more = [*prompt, 9]
    assert main([*words, text(more), "--load", str(kept)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"[5 tokens of {kept}]" and out[1].split() == text(following(more, 1)).split()
    with sdk.load_language_model(tiny_bundle) as model:
        assert model.load_prompt(str(kept)) == 5
        assert list(model.generate(more, max_tokens=1)) == following(more, 1)
        assert model.timing is not None and model.timing.reused_tokens == 5


def test_a_file_that_is_no_prompt_of_the_bundle_is_refused_in_one_line(tiny_bundle, tmp_path, capsys):
    kept = tmp_path / "kept"
    with sdk.load_language_model(tiny_bundle) as model:
        with pytest.raises(UserError, match="there is no prompt to save: generate a text with it first"):
            model.save_prompt(kept)
        list(model.generate([3, 1, 4], max_tokens=1))
        assert model.save_prompt(kept) == 3
        with pytest.raises(EngineError, match="No such file"):
            model.save_prompt(tmp_path / "missing" / "kept")
        # It goes on.
        assert list(model.generate([3, 1], max_tokens=1)) == following([3, 1], 1)
    content = kept.read_bytes()
    other = tmp_path / "other"
    another = write_tiny(other, write_tokenizer(tmp_path / "words.json"), several=True)
    for bundle, damaged, reason in (
        (tiny_bundle, content[:-1], "it is no whole file of a prompt"),
        (tiny_bundle, content[:-1] + bytes([content[-1] ^ 1]), "it is damaged"),
        (tiny_bundle, b"x" * 1000, "it is no file of a prompt"),
        (another, content, "it is of another bundle"),
    ):
        kept.write_bytes(damaged)
        assert main(["chat", str(bundle), "--prompt", "one", "--load", str(kept)]) != 0
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"{reason}: save the prompt again" in error


@pytest.fixture
def as_on_a_board(monkeypatch):
    """This machine is a device like any other: its agent runs the model, and texts are made of it here."""
    monkeypatch.setattr("sdk.language_model.LOCAL", "")
    return {"device": "local"}


def test_a_model_on_another_device_writes_what_it_writes_here(tiny_bundle, as_on_a_board, tmp_path):
    long = [place % 12 for place in range(19)]
    with sdk.load_language_model(tiny_bundle, **as_on_a_board) as model:
        assert list(model.generate(long, max_tokens=3)) == following(long, 3)
        timing = model.timing
        assert (timing.prompt_tokens, timing.tokens, timing.watts) == (19, 3, None)
        assert list(model.generate([3, 1, 4], max_tokens=2)) == following([3, 1, 4], 2)
        assert (
            "".join(model.generate(text([3, 1]), max_tokens=2)).split() == text(following([3, 1], 2)).split()
        )
        # What the device knows is not sent again.
        assert list(model.generate([*long, 5], max_tokens=1)) == following([*long, 5], 1)
        with pytest.raises(UserError, match="the prompt has 33 tokens"):
            model.generate([1] * 33)
        for action in (model.save_prompt, model.load_prompt):
            with pytest.raises(UserError, match="the prompts of a model on another device are not kept"):
                action(tmp_path / "kept")
        assert list(model.generate([2, 7], max_tokens=1)) == following([2, 7], 1)


def test_a_conversation_with_a_model_on_another_device(talking_bundle, as_on_a_board, capsys):
    words = ["chat", str(talking_bundle), "--max-tokens", "3"]
    assert main([*words, "--prompt", "two"]) == 0
    here = capsys.readouterr().out
    assert main([*words, "--prompt", "two", "--device", "local"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == here.splitlines()[0]


def test_a_device_that_goes_away_is_one_line(tiny_bundle, as_on_a_board):
    with sdk.load_language_model(tiny_bundle, **as_on_a_board) as model:
        pieces = model.generate([3, 1, 4], max_tokens=9)
        next(pieces)
        model._session.close()
        with pytest.raises(DeviceError, match="the tvm session is closed"):
            list(pieces)
        with pytest.raises(EngineError, match="the process of the model ended"):
            model.generate([1])
    with pytest.raises(EngineError, match="the process of the model ended"):
        model.generate([1])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda output: [output[:, :2]], "the device gave 8 bytes of logits, not 52"),
        # Of another type, or of more tokens: the first bytes of either are no logits.
        (lambda output: [output.astype("float64")], "the device gave 104 bytes of logits, not 52"),
        (lambda output: [], "the device gave 0 outputs, not one"),
        (lambda output: [output, output], "the device gave 2 outputs, not one"),
    ],
)
def test_a_device_that_gives_no_logits_is_told(given, reason, tiny_bundle, as_on_a_board, monkeypatch):
    with sdk.load_language_model(tiny_bundle, **as_on_a_board) as model:
        usual = model._session.run
        monkeypatch.setattr(model._session, "run", lambda *asked: given(*usual(*asked)))
        with pytest.raises(EngineError, match=reason):
            list(model.generate([3, 1, 4], max_tokens=1))


def test_a_text_that_is_interrupted_ends_the_process_that_waits_for_the_device(
    tiny_bundle, as_on_a_board, monkeypatch
):
    def interrupted(*asked):
        raise KeyboardInterrupt

    with sdk.load_language_model(tiny_bundle, **as_on_a_board) as model:
        monkeypatch.setattr(model._session, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(model.generate([3, 1, 4], max_tokens=1))
        assert model._process.returncode is not None
        with pytest.raises(EngineError, match="the process of the model ended"):
            model.generate([1])
