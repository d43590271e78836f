"""TensorRT by its program `trtexec`, where the board has no Python package of it.

It builds an engine once and runs it in a process of its
own for each measurement, whose times it exports: `computeMs` is one inference on the GPU, without copies.

Source: TensorRT Developer Guide, "trtexec", and the program's `--help`; the files are those that NVIDIA's
samples write (`exportJSONTrace` and `exportJSONOutput` of samples/common/sampleReporting.cpp).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from typing import Any, Dict, List, Optional, Sequence

from device_agent.contract.measuring import MEASURING, Plan
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute.engines import check_count, fails
from device_agent.execute.engines.onnx_file import FileTensor, tensors_of_file
from device_agent.wire.frames import TensorData

# Building an engine takes minutes on small boards. The session has a limit of its own.
_LONGEST_S = 3600.0
# Beside its inferences, the program starts, loads the engine and writes its files.
_START_S = 300.0
# Inferences that tell how many more to ask for, and the most that are ever asked for: each is some 300 bytes
# of the exported file.
_TRIED, _MOST_RUNS = 10, 100_000
_MOST_BYTES = 64 << 20


class TrtexecEngine:
    """One TensorRT engine in a file.

    Args:
        path: of the program.
        way: "fp16" or "int8", which TensorRT may use then; "" for single precision.
        timings: file in which TensorRT keeps the times of its kernels, for later builds.
    """

    def __init__(self, path: str, way: str, timings: str) -> None:
        self._path, self._way, self._timings = path, way, timings
        self._folder = tempfile.TemporaryDirectory(prefix="edgetlm-trtexec-")
        self._inputs: List[FileTensor] = []
        self._outputs: List[FileTensor] = []
        # What the program reads inputs from: "name:file".
        self._given: List[str] = []
        # Time of one inference, once any were measured.
        self._one_s: Optional[float] = None

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine. Builds the engine, which may take minutes. The number of CPU threads is ignored."""
        self._inputs, self._outputs = tensors_of_file(path)
        for info in self._inputs:
            # They separate names in the options, or end them.
            if any(one in info.name for one in ",'\0"):
                name = ValueError("rename the input %s" % printable(info.name))
                raise fails("trtexec takes no name with a comma or quote:", path, name)
        self._one_s = None
        words = ["--onnx=%s" % path, "--saveEngine=%s" % self._file("engine")]
        words += ["--timingCacheFile=%s" % self._timings, *(["--%s" % self._way] if self._way else [])]
        os.makedirs(os.path.dirname(self._timings), exist_ok=True)
        try:
            self._run(path, "cannot build", [*words, "--skipInference"])
        except AgentError as error:
            if "--skipInference" not in str(error):
                raise
            # TensorRT 8.5 and older do not know the option by this name.
            self._run(path, "cannot build", [*words, "--buildOnly"])
        return {"inputs": [], "outputs": []}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        check_count(len(inputs), len(self._inputs))
        self._given = []
        for number, (info, tensor) in enumerate(zip(self._inputs, inputs)):
            place = self._file("input%d" % number)
            with open(place, "wb") as file:
                file.write(tensor.data)
            # Quotes are for names with colons.
            self._given.append(("'%s':%s" if ":" in info.name else "%s:%s") % (info.name, place))

    def invoke(self) -> None:
        """See Engine. Starts the program, which loads the engine each time; `times_s` measures."""
        words = ["--exportOutput=%s" % self._file("outputs.json"), "--warmUp=0", "--duration=0"]
        self._timed([*words, "--iterations=1"])

    def outputs(self) -> List[TensorData]:
        """See Engine. Six digits of each element, which is what the program writes."""
        found = {str(entry.get("name")): entry for entry in _entries(self._file("outputs.json"))}
        return [_tensor(info, found.get(info.name)) for info in self._outputs]

    def times_s(self, plan: Plan) -> List[float]:
        """The times of single inferences on the GPU, as the program exports them.

        Args:
            plan: how many runs at least, and how long they and the warm-up may take.

        Returns:
            Seconds, at most `plan.max_repeats` of them.

        Raises:
            AgentError: the program fails, or its file is not what NVIDIA documents.
        """
        if self._one_s is None:
            self._measured(_TRIED, plan)
        # A duration would give a fast model more entries than can be read, so inferences are counted.
        one_s = self._one_s or MEASURING.least_s
        wanted, allowed = (min(time_s / one_s, _MOST_RUNS) for time_s in (plan.min_time_s, plan.max_time_s))
        count = min(max(plan.min_repeats, math.ceil(wanted)), plan.max_repeats, int(allowed))
        return self._measured(max(1, count), plan)[: plan.max_repeats]

    def _measured(self, count: int, plan: Plan) -> List[float]:
        warmup_s = min(plan.warmup_s, 60.0)
        words = ["--iterations=%d" % count, "--duration=0", "--warmUp=%d" % int(1000 * warmup_s)]
        limit_s = min(_LONGEST_S, _START_S + warmup_s + plan.max_time_s)
        times = self._timed([*words, "--useCudaGraph"], limit_s)
        self._one_s = sorted(times)[len(times) // 2]
        return times

    def _timed(self, words: Sequence[str], limit_s: float = _LONGEST_S) -> List[float]:
        exported = self._file("times.json")
        engine = ["--loadEngine=%s" % self._file("engine"), "--loadInputs=%s" % ",".join(self._given)]
        self._run("the model", "cannot run", [*engine, "--exportTimes=%s" % exported, *words], limit_s)
        return times_of(exported)

    def _file(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def _run(self, path: str, action: str, words: Sequence[str], limit_s: float = _LONGEST_S) -> None:
        try:
            done = subprocess.run(
                [self._path, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise fails("trtexec %s" % action, path, error) from error
        if done.returncode != 0:
            lines = done.stdout[-65536:].decode("utf-8", "replace").splitlines()
            errors = [line for line in lines if "[E]" in line] or lines[-1:] or ["no reason given"]
            raise fails("trtexec %s" % action, path, ValueError(printable(errors[0], 300)))


def times_of(path: str) -> List[float]:
    """Seconds of the inferences in a file of `trtexec --exportTimes`.

    Raises:
        AgentError: the file is not what NVIDIA documents.
    """
    try:
        times = [float(entry["computeMs"]) / 1e3 for entry in _entries(path)]
        if not times or not all(math.isfinite(one) and one > 0 for one in times):
            raise ValueError("a time is not above zero")
    except (ValueError, TypeError, KeyError) as error:
        raise _odd(path, error) from error
    return times


def _entries(path: str) -> List[Any]:
    """The objects in a file of the program's.

    Raises:
        AgentError: there is no such file, or it is no list of objects.
    """
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise ValueError("it is too large")
        with open(path, "rb") as file:
            entries = json.loads(file.read())
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise ValueError("it is no list of objects")
    except (OSError, ValueError, RecursionError) as error:
        raise _odd(path, error) from error
    return entries


def _tensor(info: FileTensor, entry: Any) -> TensorData:
    import numpy

    try:
        shape = tuple(int(size) for size in str(entry["dimensions"]).split("x") if size)
        if any(size < 0 for size in shape):
            raise ValueError("a size is below zero")
        values = numpy.array(entry["values"], dtype=info.dtype).reshape(shape)
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise _odd("the output %s" % printable(info.name), error) from error
    return TensorData(values.shape, info.dtype, values.tobytes())


def _odd(path: str, error: BaseException) -> AgentError:
    return fails("trtexec: nothing to read in", path, ValueError(printable(str(error), 200)))
