"""Conversations as prompts, by the chat templates of a bundle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from device_agent.contract.language.chat_templates import (
    CHAT,
    DEFAULT,
    MOST_BYTES,
    ChatTemplates,
    parse_chat,
)
from device_agent.contract.manifest import ContractError
from device_agent.contract.text import printable
from device_agent.contract.verify import read_bounded
from device_agent.errors import AgentError

# Of a template, which takes a hundredth of that.
_SECONDS = 5.0
_ADVICE = "correct it in the model's files and deploy it again, or give generate a text"


class Chat:
    """The chat templates of a bundle.

    Each is rendered in a process of its own.

    Args:
        folder: of the bundle, whose files have been checked.
        seconds: processor time that a template may take.

    Attributes:
        names: of the templates; none where the model came without.

    Raises:
        AgentError: the bundle's file of templates is damaged.
    """

    def __init__(self, folder: str, seconds: float = _SECONDS) -> None:
        self._folder, self._seconds = folder, seconds
        self._known = _read(folder)
        self.names: Tuple[str, ...] = tuple(sorted(self._known.templates))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: Optional[str] = None,
        variables: Optional[Mapping[str, Any]] = None,
    ) -> str:
        """The prompt that a conversation makes; what the model writes next follows it.

        Args:
            messages: turns, oldest first: each has a "role" and mostly a "content".
            template: its name; None for the usual one.
            variables: that the template may name.

        Raises:
            ValueError: the messages are none.
            AgentError: the bundle has no such template, the template fails, or jinja2 is not installed.
        """
        given = self._text(template)
        values: Dict[str, Any] = {"tools": None, "documents": None, **self._known.special_tokens}
        values.update(variables or {})
        values.update(messages=_checked(messages), add_generation_prompt=True)
        try:
            request = json.dumps({"template": given, "variables": values, "seconds": self._seconds})
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError("a message is no JSON: %s" % printable(error, 200)) from error
        answer = self._ask(request)
        if "missing" in answer:
            raise AgentError(
                "engine",
                "a chat template needs the package jinja2, which %s: pip install 'jinja2>=3.1.6', or give "
                "generate a text" % printable(answer["missing"], 100),
            )
        if "error" in answer:
            raise self._failed(str(answer["error"]))
        return str(answer["text"])

    def _text(self, name: Optional[str]) -> str:
        if not self.names:
            raise AgentError(
                "bad_request",
                "%s has no chat template: deploy a model that has one, or give generate a text"
                % printable(self._folder),
            )
        found = self._known.templates.get(DEFAULT if name is None else name)
        if found is None:
            raise AgentError(
                "bad_request",
                "there is no chat template %s: name one of %s"
                % (printable(repr(name or DEFAULT), 60), printable(", ".join(self.names), 200)),
            )
        return found

    def _ask(self, request: str) -> Dict[str, Any]:
        # It finds what this process finds, and nothing in the folder that this one works in.
        places = [os.path.abspath(place) for place in sys.path]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "device_agent.execute.text.template_process"],
                cwd=os.sep,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
                input=request.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError as error:
            raise AgentError("engine", "the chat template cannot be rendered: %s" % error) from error
        if done.returncode == -signal.SIGXCPU:
            raise self._failed("it takes more than %g s" % self._seconds)
        if done.returncode != 0:
            raise self._failed("its process ended with code %d" % done.returncode)
        answer: Dict[str, Any] = json.loads(done.stdout)
        return answer

    @staticmethod
    def _failed(reason: str) -> AgentError:
        return AgentError(
            "bad_request", "the model's chat template fails: %s: %s" % (printable(reason, 200), _ADVICE)
        )


def _read(folder: str) -> ChatTemplates:
    path = os.path.join(folder, CHAT)
    if not os.path.lexists(path):
        return ChatTemplates({}, {})
    try:
        return parse_chat(read_bounded(path, MOST_BYTES))
    except (ContractError, FileNotFoundError) as error:
        raise AgentError("bundle", "%s: %s" % (printable(path), error)) from error


def _checked(messages: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    if isinstance(messages, (str, bytes, Mapping)) or not messages:
        raise ValueError("there are no messages: give a list with one or more")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError('a message has no "role": give {"role": "user", "content": "..."}')
    return [dict(message) for message in messages]
