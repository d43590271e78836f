"""A process that answers as those of the engines of `benchmarks.llm` do."""

from __future__ import annotations

import sys
import time

from device_agent.text_engines.worker import serve


def add(first: int, second: int) -> dict[str, int]:
    print("a library says something")
    return {"sum": first + second}


def refuse() -> dict[str, int]:
    raise ValueError("no\nsuch model")


def crash() -> dict[str, int]:
    sys.stderr.write("a last word\n")
    sys.stderr.flush()
    raise SystemExit(3)


def wait() -> dict[str, int]:
    time.sleep(60)
    return {}


def say(given: bytes) -> None:
    """Write what is no answer, in place of one."""
    sys.stdin.readline()
    sys.stdout.buffer.write(given + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        say(bytes.fromhex(sys.argv[1]))
    serve({"add": add, "refuse": refuse, "crash": crash, "wait": wait})
