"""Worker processes for the node tests: several cases each, killed when one takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from random import Random
from typing import Any

from benchmarks.result_file import ROOT


class Worker:
    """One process that answers a line for each case name it is given."""

    def __init__(self, options: Sequence[str]) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "TVM_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.onnx_nodes.case", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        first = self.lines.get(timeout=1200)
        if first is None:
            raise RuntimeError(f"benchmarks.onnx_nodes.case ended with {self.process.wait()}")
        self.families: dict[str, str] = json.loads(first)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.put(line)
        self.lines.put(None)

    def run(self, name: str, time_limit_s: float) -> dict[str, Any]:
        """The result of one case; the process is dead after a crash or a timeout."""
        assert self.process.stdin is not None
        ends = time.monotonic() + time_limit_s
        kernel = "no kernel"
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            while (line := self.lines.get(timeout=max(0.0, ends - time.monotonic()))) is not None:
                answer: dict[str, Any] = json.loads(line)
                if "outcome" in answer:
                    return answer
                kernel = answer["kernel"]
        except queue.Empty:
            self.close()
            return {
                "name": name,
                "outcome": "timeout",
                "detail": f"more than {time_limit_s:.0f} s, {kernel} at work",
            }
        except BrokenPipeError:
            pass
        self.close()
        return {
            "name": name,
            "outcome": "crash",
            "detail": f"exit code {self.process.returncode}, {kernel} at work",
        }

    @property
    def alive(self) -> bool:
        """Whether it can take another case."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def sampled(families: Mapping[str, str], share: float, seed: int) -> list[str]:
    """A part of the cases: one of each family, then another of each that has one, until there are enough.

    Args:
        families: family by name of the case.
        share: of all cases, up to 1.
        seed: of the order within the families.
    """
    by_family: dict[str, list[str]] = {}
    for name, family in families.items():
        by_family.setdefault(family, []).append(name)
    random = Random(seed)
    orders = [random.sample(names, len(names)) for _, names in sorted(by_family.items())]
    random.shuffle(orders)
    turns = chain.from_iterable(zip_longest(*orders))
    kept = {name for name, _ in zip(filter(None, turns), range(round(share * len(families))), strict=False)}
    return [name for name in families if name in kept]


def run_cases(
    texts: Sequence[str],
    share: float,
    seed: int,
    workers: int,
    time_limit_s: float,
    options: Sequence[str],
) -> list[dict[str, Any]]:
    """Run the node tests whose names contain one of `texts` (all of them if it is empty).

    Args:
        texts: parts of names.
        share: of these cases, see `sampled`.
        seed: decides which.
        workers: processes at a time.
        time_limit_s: of one case.
        options: of `benchmarks.onnx_nodes.case`.

    Returns:
        A result per case, in order.
    """
    first = Worker(options)
    fitting = {
        name: family
        for name, family in first.families.items()
        if not texts or any(text in name for text in texts)
    }
    names = sampled(fitting, share, seed)
    pending: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        pending.put(name)
    results: dict[str, dict[str, Any]] = {}

    def drain(worker: Worker | None) -> None:
        while True:
            try:
                name = pending.get_nowait()
            except queue.Empty:
                break
            if worker is None or not worker.alive:
                worker = Worker(options)
            results[name] = worker.run(name, time_limit_s)
            if len(results) % 100 == 0:
                sys.stderr.write(f"{len(results)}/{len(names)}\n")
        if worker is not None:
            worker.close()

    threads = [
        threading.Thread(target=drain, args=(first if index == 0 else None,)) for index in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name] for name in names]
