"""Chat templates give the prompts that transformers gives, and hostile ones an error of one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent.contract.language.chat_templates import CHAT, MOST_BYTES, check_chat, parse_chat
from device_agent.contract.manifest import ContractError
from device_agent.errors import AgentError
from device_agent.execute.text import template_process
from device_agent.execute.text.chat import Chat
from device_agent.execute.text.template_process import TemplateFailed, rendered
from device_agent.execute.text.tokenizer import Tokenizer
from host.importers.decoders.chat import read_chat
from tests.unit.device_agent.execute.chat_styles import CONVERSATIONS, SPECIAL, STYLES, USER


def made(folder: Path, template: str | dict[str, str]) -> Any:
    """A tokenizer of transformers with a chat template."""
    from tokenizers import Tokenizer as Words
    from tokenizers import decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = {
        letter: len(SPECIAL) + place for place, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())
    }
    words = Words(models.BPE({token: place for place, token in enumerate(SPECIAL)} | letters, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens(SPECIAL)
    # A text begins with a token, which templates write themselves.
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template
    )
    tokenizer.save_pretrained(str(folder))
    return tokenizer


def opened(folder: Path) -> Chat:
    """The chat templates of a folder of transformers, as those of a bundle."""
    content, files = read_chat(folder)
    assert content is not None and files
    (folder / CHAT).write_bytes(content)
    return Chat(str(folder))


@pytest.mark.parametrize("style", STYLES)
def test_prompts_are_those_of_transformers(style: str, tmp_path: Path) -> None:
    theirs = made(tmp_path, STYLES[style])
    chat, tokenizer = opened(tmp_path), Tokenizer(str(tmp_path))
    for messages in CONVERSATIONS.values():
        for variables in ({}, {"thinks": False, "tools": [{"name": "sea", "of": ["\u00e4"]}]}):
            asked: dict[str, Any] = {"add_generation_prompt": True, **variables}
            text = theirs.apply_chat_template(messages, tokenize=False, **asked)
            assert chat.render(messages, variables=variables) == text
            tokens = theirs.apply_chat_template(messages, tokenize=True, return_dict=False, **asked)
            assert tokenizer.encode(text, around=False) == list(tokens)
    assert tokenizer.encode("a")[0] == 1 and tokenizer.encode("a", around=False)[0] != 1


def test_a_named_template_is_taken_by_its_name(tmp_path: Path) -> None:
    theirs = made(tmp_path, {"default": "{{ messages[0].content }}", "shout": STYLES["llama"]})
    chat = opened(tmp_path)
    assert chat.names == ("default", "shout") and chat.render([USER]) == USER["content"]
    expected = theirs.apply_chat_template(
        [USER], chat_template="shout", tokenize=False, add_generation_prompt=True
    )
    assert chat.render([USER], "shout") == expected
    with pytest.raises(AgentError, match=r"no chat template 'x\\x1b': name one of default, shout"):
        chat.render([USER], "x\x1b")


@pytest.fixture
def chat_of(tmp_path: Path) -> Callable[[str], Chat]:
    def chat(template: str) -> Chat:
        (tmp_path / CHAT).write_bytes(check_chat({"default": template}, {"bos_token": "<s>"}).content())
        return Chat(str(tmp_path), seconds=0.5)

    return chat


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ ''['__class__']['__mro__'] }}", "unsafe"),
        ("{{ '{0.__class__.__mro__}'.format(messages) }}", "unsafe"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "a variable is called '__class__'"),
        ("{{ namespace(_a=1) }}", "a variable is called '_a'"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{{ strftime_now.__globals__['json'] }}", "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "more than 4194304 characters"),
        ("\n{% if %}", "line 2: Expected an expression"),
        ("{% for a in b %}", "line 1: Unexpected end of template"),
        ("{{ nobody() }}", "'nobody' is undefined"),
        ("{{ messages[0].a.b }}", "has no attribute 'a'"),
        ("{{ raise_exception('no\x1b[2J\nroles') }}", "no\x1b[2J\nroles"),
        ("{{ raise_exception() }}", "missing 1 required positional argument"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{{ 'x'|nofilter }}", "No filter named 'nofilter'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
        ("{{" + "(" * 20000 + "}}", "nested too deeply"),
        ("{% for i in x %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("{{ messages | tojson(indent='\\ud800') }}{{ strftime_now(3) }}", "strftime"),
    ],
)
def test_a_template_that_fails_says_why(template: str, reason: str) -> None:
    variables = {"messages": [USER]}
    with pytest.raises(TemplateFailed) as failure:
        rendered(template, variables)
    assert reason in str(failure.value)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 0.5 s"),
        ("{{ 10 ** (10 ** 9) }}", "more than 0.5 s"),
        ("{{ 'a' * 10 ** 10 }}", "512 MiB of memory"),
        ("{{ raise_exception('no\x1b[2J\nroles') }}", r"no\\x1b\[2J roles"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_hostile_template_ends_in_one_line(
    template: str, reason: str, chat_of: Callable[[str], Chat]
) -> None:
    chat = chat_of(template)
    with pytest.raises(AgentError, match=reason) as refusal:
        chat.render([USER])
    assert "the model's chat template fails: " in str(refusal.value) and str(refusal.value).isprintable()
    assert "deploy it again, or give generate a text" in str(refusal.value)
    assert refusal.value.kind == "bad_request"


def answered(template: str, before: str = "") -> bytes:
    """What the process of a template writes, which a shell starts.

    Args:
        template: of the request.
        before: a command of the shell.
    """
    request = {"template": template, "variables": {}, "seconds": 5.0}
    program = f"{before} exec {sys.executable} -m {template_process.__name__}"
    return subprocess.run(
        ["sh", "-c", program], input=json.dumps(request).encode(), stdout=subprocess.PIPE, check=True
    ).stdout


def test_the_reason_that_a_template_writes_is_short() -> None:
    assert len(answered("{{ raise_exception('no' * 10**7) }}")) < 2000
    assert len(answered("{{ 'a'|" + "n" * 10**5 + " }}")) < 2000


def test_a_template_is_rendered_where_a_process_may_have_less_memory() -> None:
    assert json.loads(answered("{{ 'a' }}", "ulimit -v 400000;")) == {"text": "a"}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("raise ImportError('none')", "is not installed"),
        ("__version__ = '3.1.2'", "is 3.1.2, whose sandbox is not safe"),
    ],
    ids=["missing", "old"],
)
def test_without_a_jinja_of_today_an_error_says_what_to_install(
    content: str,
    found: str,
    chat_of: Callable[[str], Chat],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "place" / "jinja2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(content)
    (package / "sandbox.py").write_text("class ImmutableSandboxedEnvironment: pass")
    monkeypatch.syspath_prepend(str(package.parent))
    with pytest.raises(AgentError) as refusal:
        chat_of("{{ bos_token }}").render([USER])
    assert str(refusal.value) == (
        f"a chat template needs the package jinja2, which {found}: pip install 'jinja2>=3.1.6', or give "
        "generate a text"
    )
    assert refusal.value.kind == "engine"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "there are no messages"),
        ("hello", "there are no messages: give a list"),
        ({"role": "user"}, "there are no messages: give a list"),
        (["hello"], 'a message has no "role"'),
        ([{"content": "hello"}], 'a message has no "role"'),
        ([{"role": "user", "content": {1, 2}}], "a message is no JSON"),
    ],
)
def test_messages_that_are_none_are_refused(
    messages: Any, reason: str, chat_of: Callable[[str], Chat]
) -> None:
    with pytest.raises(ValueError, match=reason):
        chat_of("{{ bos_token }}").render(messages)


def test_a_bundle_without_templates_says_what_to_do(tmp_path: Path) -> None:
    chat = Chat(str(tmp_path))
    assert chat.names == ()
    with pytest.raises(AgentError, match="has no chat template: deploy a model that has one, or give"):
        chat.render([USER])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "has not the schema"),
        (b'{"schema": "edgetlm.chat/2"}', "has not the schema"),
        (b'{"schema": "edgetlm.chat/1", "templates": []}', "no templates"),
        (b'{"schema": "edgetlm.chat/1", "templates": {}, "special_tokens": {}}', "0 chat templates"),
        (b'{"schema": "edgetlm.chat/1", "templates": {"a": 1}, "special_tokens": {}}', "is no text"),
        (b'{"schema": "edgetlm.chat/1", "templates": {"../a": ""}, "special_tokens": {}}', "is not of A-Z"),
        (b'{"schema": "edgetlm.chat/1", "templates": {"a": ""}, "special_tokens": {"x": ""}}', "tokens"),
        (b" " * (MOST_BYTES + 1), "more than 1048576 bytes"),
    ],
)
def test_a_damaged_file_of_templates_is_an_error_of_the_bundle(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    (tmp_path / CHAT).write_bytes(content)
    with pytest.raises(AgentError, match=reason) as refusal:
        Chat(str(tmp_path))
    assert refusal.value.kind == "bundle" and str(refusal.value).isprintable()


def test_what_is_written_is_read() -> None:
    checked = check_chat({"default": "\u00e4{{ a }}", "b": ""}, {"eos_token": "\U0001f30a"})
    assert parse_chat(checked.content()) == checked
    assert json.loads(checked.content())["schema"] == "edgetlm.chat/1"


@pytest.mark.parametrize(
    ("templates", "tokens"),
    [
        ({"a": "x" * MOST_BYTES}, {}),
        ({"a": "\ud800"}, {}),
        ({f"t{n}": "" for n in range(33)}, {}),
        ({"a": ""}, {"bos_token": "x" * 2000}),
        ({"a": ""}, {f"t{n}_token": "" for n in range(300)}),
    ],
    ids=["long", "half a character", "many", "long token", "many tokens"],
)
def test_templates_beyond_the_bounds_are_refused(templates: dict[str, str], tokens: dict[str, str]) -> None:
    with pytest.raises(ContractError):
        check_chat(templates, tokens)


def test_a_template_is_rendered_with_the_bounds_that_its_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "_MOST_CHARACTERS", 4)
    assert rendered("{{ 'abcd' }}", {}) == "abcd"
    with pytest.raises(TemplateFailed, match="more than 4 characters"):
        rendered("{{ 'abcd' }}{{ 'e' }}", {})
