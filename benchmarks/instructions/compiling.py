"""Compiles in a process of its own, which is ended when one program takes too long.

`python -m benchmarks.instructions.compiling` is that process: a line with a request, a line back.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from host.build import KernelCache
from host.build.kernel import compile_kernel, kernel_key
from host.errors import BuildError

_START_S = 300.0


@dataclass
class LimitedCompiler:
    """Puts the objects of scheduled functions into a cache.

    Attributes:
        cache: where the objects go, under the key that `compile_kernel` looks for.
        limit_s: seconds that one function may take.
    """

    cache: KernelCache
    limit_s: float
    _process: subprocess.Popen[str] | None = field(default=None, init=False)
    _lines: queue.Queue[str | None] = field(default_factory=queue.Queue, init=False)

    def compile(self, function: tvm.tirx.PrimFunc, target: tvm.target.Target, folder: Path) -> None:
        """Compile one function, unless the cache holds it.

        Args:
            function: scheduled.
            target: what to compile for.
            folder: for files.

        Raises:
            BuildError: it does not compile, takes more than `limit_s` seconds, or crashes the compiler.
        """
        if self.cache.get(kernel_key(function, target)) is not None:
            return
        source = folder / "function.json"
        source.write_text(tvm.ir.save_json(function))
        request = {
            "function": str(source),
            "target": tvm.ir.save_json(target),
            "cache": str(self.cache.folder),
        }
        answer = self._ask(json.dumps(request))
        if answer["error"]:
            raise BuildError(answer["error"])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, request: str) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self.limit_s)
        except queue.Empty:
            self.close()
            raise BuildError(f"not compiled after {self.limit_s:.0f} s") from None
        except BrokenPipeError:
            line = None
        if line is None:
            self.close()
            raise BuildError("the compiler crashed")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.instructions.compiling"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TVM_NUM_THREADS": "1"},
        )
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        # Starting is no part of the time of the first program.
        if self._lines.get(timeout=_START_S) is None:
            self.close()
            raise BuildError("the compiler's process does not start")
        return self._process


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _answer(request: dict[str, Any]) -> str:
    function = tvm.ir.load_json(Path(request["function"]).read_text())
    try:
        compile_kernel(
            function, "program", tvm.ir.load_json(request["target"]), KernelCache(Path(request["cache"]))
        )
    except BuildError as error:
        return str(error)
    return ""


def main() -> int:
    """Answer requests until there are no more."""
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps({"error": _answer(json.loads(line))}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
