"""Renders a chat template, which is anyone's program, in a process with little memory and time.

JSON, the request on stdin, the answer on stdout:

    {"template": text, "variables": {name: value},    {"text": text}, {"error": why there is none}, or
     "seconds": processor time}                       {"missing": the package that is needed}

Jinja's sandbox keeps a template from Python's objects; the limits of the process end what the sandbox lets
through: powers of large numbers, loops in loops, texts that are repeated. The system ends the process where a
template takes more than its seconds.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from datetime import datetime
from typing import Any, Dict, List, Mapping

_MEMORY_BYTES = 1 << 29
# Beyond the longest context.
_MOST_CHARACTERS = 1 << 22
# Of the reason why there is no text, which a template may write too.
_REASON_CHARACTERS = 1000
# Before it, the sandbox of Jinja let templates out (CVE-2025-27516).
_JINJA = (3, 1, 6)


class TemplateFailed(Exception):
    """A template gives no text; the message says why, in one line or several."""


class _Missing(Exception):
    """Jinja is not installed, or is too old; the message says so."""


def main() -> int:
    """Answers one request."""
    _limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    _limit_time(request["seconds"])
    try:
        answer = {"text": rendered(request["template"], request["variables"])}
    except TemplateFailed as error:
        answer = {"error": str(error)[:_REASON_CHARACTERS]}
    except _Missing as error:
        answer = {"missing": str(error)}
    json.dump(answer, sys.stdout)
    return 0


def rendered(template: str, variables: Mapping[str, Any]) -> str:
    """The text of a template.

    Args:
        template: in the language of Jinja.
        variables: that it may name.

    Raises:
        TemplateFailed: it cannot be read, fails, or its text is longer than any.
    """
    pieces: List[str] = []
    length = 0
    try:
        for piece in _environment().from_string(template).generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > _MOST_CHARACTERS:
                raise TemplateFailed("it writes more than %d characters" % _MOST_CHARACTERS)
    except (TemplateFailed, _Missing):
        raise
    except MemoryError as error:
        raise TemplateFailed("it takes more than %d MiB of memory" % (_MEMORY_BYTES >> 20)) from error
    except RecursionError as error:
        raise TemplateFailed("it is nested too deeply") from error
    except Exception as error:
        # Whatever Python raises can come out of a template.
        raise TemplateFailed(_reason(error)) from error
    return "".join(pieces)


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        # Of the program that Jinja made of the template, whose lines mean nothing to anybody.
        return error.msg
    line = getattr(error, "lineno", None)
    place = "line %d: " % line if isinstance(line, int) else ""
    return place + (str(error) or type(error).__name__)


def _environment() -> Any:
    """Jinja as transformers gives it to templates: its extensions, filters and functions."""
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise _Missing("is not installed") from error
    found = jinja2.__version__
    if tuple(int(part) for part in found.split(".")[:3] if part.isdigit()) < _JINJA:
        raise _Missing("is %s, whose sandbox is not safe" % found)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_refuse, strftime_now=_now, namespace=_namespace(), dict=_Dictionary()
    )
    return environment


def _generation() -> Any:
    """The tag around what the model writes, which transformers takes for training: it changes no text."""
    from jinja2.ext import Extension

    class Generation(Extension):
        def __init__(self, environment: Any) -> None:
            super().__init__(environment)
            self.tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _namespace() -> Any:
    """Jinja's variables that a loop may change, without names of Python's own attributes."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    class Variables(Namespace):
        def __init__(self, *given: Any, **fields: Any) -> None:
            values = dict(*given, **fields)
            for name in values:
                _public(name)
            super().__init__(values)

        def __setitem__(self, name: str, value: Any) -> None:
            _public(name)
            super().__setitem__(name, value)

    def _public(name: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError("a variable is called %r" % name)

    return Variables


class _Dictionary:
    """What templates call as `dict`."""

    def __call__(self, *given: Any, **fields: Any) -> Dict[Any, Any]:
        return dict(*given, **fields)

    def fromkeys(self, *given: Any) -> Dict[Any, Any]:
        return dict.fromkeys(*given)


def _refuse(message: Any) -> None:
    raise TemplateFailed(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    # That of Jinja writes escapes for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _limit_time(seconds: float) -> None:
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds))


def _limit(kind: int, most: int) -> None:
    """Less, where whoever started the process may have no more."""
    own = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if own == resource.RLIM_INFINITY else min(most, own), own))


if __name__ == "__main__":
    sys.exit(main())
