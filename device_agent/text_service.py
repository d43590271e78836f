"""Generates texts for the process that started this one: lines of JSON, requests on stdin, answers on stdout.

    (first)                                     {"warning": text, "templates": names} or {"error": message,
                                                "kind": kind}
    {"prompt": text or numbers, "max_tokens",   {} or an error; the text before is left
     "temperature", "top_k", "top_p", "seed",
     "stop"}
    the same with "messages", "template" and    the same, of the next turn of a conversation
     "variables" in place of "prompt"
    {}                                          {"piece": text or number}, or at the end {"stopped": reason,
                                                "timing": {fields of `Timing`}, "tokens_per_s",
                                                "power": see `TextPower.end`}, or an error
    {"save": path} or {"load": path}            {"tokens": of the state that is in the file}, or an error

Each piece is asked for, so that a text can be left at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from typing import IO, Any, Dict, Iterable, Iterator, Optional

from device_agent import runtime
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.text_power import TextPower, of_this_machine

_FIELDS = ("max_tokens", "temperature", "top_k", "top_p", "seed", "stop")


def serve(bundle: str, trust: str, keys: Optional[str], board: str) -> int:
    """Loads a bundle and generates texts until stdin ends.

    Args:
        bundle: folder of the bundle.
        trust: "signed" or "unsigned"; see `device_agent.runtime.load`.
        keys: file of the trusted keys.
        board: file with the facts of the board, for its power sensor; it may be missing.

    Returns:
        0, or 1 where the bundle cannot be loaded.
    """
    # Whatever a library prints goes to stderr, so that it is not taken for an answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = runtime.load(bundle, trust=trust, keys=keys)
                templates = list(model.chat_templates)
        except (AgentError, RuntimeError, OSError) as error:
            _answer(answers, _refusal(error))
            return 1
        # The likeliest of 150,000 tokens takes 6 ms without it, a quarter of a step of a small model.
        with contextlib.suppress(ImportError):
            __import__("numpy")
        power = of_this_machine(board)
        _answer(answers, {"warning": model.warning or "", "templates": templates})
        try:
            for reply in replies(model, sys.stdin, power):
                _answer(answers, reply)
        finally:
            power.close()
    return 0


def replies(model: runtime.Model, lines: Iterable[str], power: TextPower) -> Iterator[Dict[str, Any]]:
    """The answers to some requests.

    Args:
        model: that generates.
        lines: the requests.
        power: of the texts.
    """
    pieces: Iterator[Any] = iter(())
    for line in lines:
        try:
            request = json.loads(line)
            if "save" in request:
                yield {"tokens": model.save_prompt(request["save"])}
            elif "load" in request:
                yield {"tokens": model.load_prompt(request["load"])}
            elif request:
                pieces = iter(())
                power.begin()
                pieces = _begun(model, request)
                yield {}
            else:
                yield _next(model, pieces, power)
        except (AgentError, ValueError, TypeError, RuntimeError, OSError) as error:
            yield _refusal(error)


def _begun(model: runtime.Model, request: Dict[str, Any]) -> Iterator[Any]:
    how = {name: request[name] for name in _FIELDS if name in request}
    if "messages" not in request:
        return model.generate(request.get("prompt", ()), **how)
    template, variables = request.get("template"), request.get("variables")
    return model.chat(request["messages"], template=template, variables=variables, **how)


def _next(model: runtime.Model, pieces: Iterator[Any], power: TextPower) -> Dict[str, Any]:
    for piece in pieces:
        return {"piece": piece}
    timing = model.timing
    return {
        "stopped": model.stopped,
        "timing": timing._asdict() if timing is not None else None,
        "tokens_per_s": timing.tokens_per_s if timing is not None else None,
        "power": power.end(timing.tokens) if timing is not None else None,
    }


def _refusal(error: Exception) -> Dict[str, Any]:
    kind = error.kind if isinstance(error, AgentError) else "engine"
    if isinstance(error, (ValueError, TypeError)):
        kind = "bad_request"
    return {"error": printable(error), "kind": kind}


def _answer(answers: IO[str], fields: Dict[str, Any]) -> None:
    answers.write(json.dumps(fields) + "\n")
    answers.flush()
