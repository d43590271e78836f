"""The worker's side: confines itself first, then answers requests until its input ends.

`python -m host.sandbox.child SETTINGS`: SETTINGS is JSON. A request and its answer are a line of JSON each;
arrays and modules travel in files of the scratch folder. No library is loaded before the process is confined,
so that there is no thread that is not.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.sandbox.kernel import Bounds, confine, end_with_parent, limit

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def apply(settings: dict[str, Any]) -> tuple[str, ...]:
    """Confine this process by the settings; returns what the kernel does not offer."""
    end_with_parent()
    limit(Bounds(**settings["bounds"]))
    return confine(*([Path(place) for place in settings[kind]] for kind in ("run", "read", "write", "names")))


def answer(function: str, request: dict[str, Any]) -> dict[str, Any]:
    """Call `module:function` and return its answer, or the error that it ended in, as plain data."""
    module, _, name = function.partition(":")
    try:
        return {"value": getattr(importlib.import_module(module), name)(**request)}
    except MemoryError:
        return {"error": "MemoryError", "message": "", "operator": None}
    except RecursionError:
        return {"error": "RecursionError", "message": "it is nested too deeply", "operator": None}
    except OSError as error:
        full = error.errno in _NO_SPACE
        message = f"no space left in {Path.cwd().parent} for what is read: free some and run again"
        kind = "DeviceFull" if full else type(error).__name__
        return {"error": kind, "message": message if full else printable(error), "operator": None}
    except BaseException as error:  # noqa: BLE001 - whatever libraries raise, a panic of one in Rust too
        if (wrong := _wrong_version(error)) is not None:
            return wrong
        kind = type(error).__name__
        if "bad_alloc" in str(error) or "bad allocation" in str(error):
            kind = "MemoryError"
        return {"error": kind, "message": printable(error), "operator": getattr(error, "operator", None)}


def _wrong_version(error: BaseException) -> dict[str, Any] | None:
    """The answer where a library has another version than the required one: no file is to blame for it."""
    from host.versions import of_a_package, wrong_version

    message = wrong_version(error) if of_a_package(error) else None
    return None if message is None else {"error": "EngineError", "message": message, "operator": None}


def _load(modules: list[str]) -> None:
    """Import libraries. They stay, so the collector of cycles looks at them neither now nor later."""
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


def main(arguments: list[str]) -> int:
    """Answers requests until the input ends; returns the exit code 0."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)  # what libraries print is no answer
    settings = json.loads(arguments[0])
    missing = apply(settings)
    answers.write(json.dumps({"missing": list(missing)}) + "\n")
    answers.flush()
    ready: dict[str, Any] = {"ready": True}
    try:
        _load(settings["prepare"])
    except Exception as error:
        wrong = _wrong_version(error)
        if wrong is None:
            raise
        ready = wrong
    answers.write(json.dumps(ready) + "\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(answer(asked["function"], asked["request"])) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
