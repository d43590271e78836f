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

Each piece is asked for, so that a text can be left at any time. Where another device runs the model, an
answer may be {"run": name of a function or "", "inputs": numbers of each input}; the next line is {"output":
its bytes in base 64} then, and the answer follows.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import warnings
from typing import IO, Any, Dict, Iterable, Iterator, List, Optional

from device_agent import runtime
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute.relayed import RelayedMachine
from device_agent.store.opened_bundle import open_bundle
from device_agent.text_power import TextPower, of_this_machine

_FIELDS = ("max_tokens", "temperature", "top_k", "top_p", "seed", "stop")


class _NoMeter:
    """In place of the meter of this machine where another one runs the model."""

    def probe(self) -> Dict[str, str]:
        return {"unavailable": "the model runs elsewhere"}

    def close(self) -> None:
        """Nothing is open."""


def serve(bundle: str, trust: str, keys: Optional[str], board: str, relayed: bool = False) -> int:
    """Loads a bundle and generates texts until stdin ends.

    Args:
        bundle: folder of the bundle.
        trust: "signed" or "unsigned"; see `device_agent.runtime.load`.
        keys: file of the trusted keys.
        board: file with the facts of the board, for its power sensor; it may be missing.
        relayed: whether the process that started this one has the calls of the model run.

    Returns:
        0, or 1 where the bundle cannot be loaded.
    """
    # Whatever a library prints goes to stderr, so that it is not taken for an answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if relayed:
                    model = runtime.Model(open_bundle(bundle, trust, keys), machine=_relaying(answers))
                else:
                    model = runtime.load(bundle, trust=trust, keys=keys)
                templates = list(model.chat_templates)
        except (AgentError, RuntimeError, OSError) as error:
            _answer(answers, _refusal(error))
            return 1
        # The likeliest of 150,000 tokens takes 6 ms without it, a quarter of a step of a small model.
        with contextlib.suppress(ImportError):
            __import__("numpy")
        power = TextPower(_NoMeter()) if relayed else of_this_machine(board)
        _answer(answers, {"warning": model.warning or "", "templates": templates})
        try:
            for reply in replies(model, iter(sys.stdin.readline, ""), power):
                _answer(answers, reply)
        finally:
            power.close()
    return 0


def _relaying(answers: IO[str]) -> RelayedMachine:
    """A model whose calls are asked for among the answers."""

    def run(name: str, values: List[List[int]]) -> bytes:
        _answer(answers, {"run": name, "inputs": values})
        line = sys.stdin.readline()
        if not line:
            raise AgentError("engine", "the host has gone")
        return base64.b64decode(json.loads(line)["output"], validate=True)

    return RelayedMachine(run)


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
