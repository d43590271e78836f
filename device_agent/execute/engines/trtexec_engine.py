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
from typing import Any, Dict, List, Sequence

from device_agent.contract.measuring import Plan
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.execute.engines import check_count, fails
from device_agent.execute.engines.onnx_file import FileTensor, tensors_of_file
from device_agent.wire.frames import TensorData

# Building an engine takes minutes on small boards. The session has a limit of its own.
_LONGEST_S = 3600.0
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

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine. Builds the engine, which may take minutes. The number of CPU threads is ignored."""
        self._inputs, self._outputs = tensors_of_file(path)
        precision = ["--%s" % self._way] if self._way else []
        # Until TensorRT 8.5, the program called it --buildOnly.
        words = ["--onnx=%s" % path, "--saveEngine=%s" % self._file("engine"), "--skipInference"]
        os.makedirs(os.path.dirname(self._timings), exist_ok=True)
        self._run(path, "cannot build", [*words, "--timingCacheFile=%s" % self._timings, *precision])
        return {"inputs": [], "outputs": []}

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        check_count(len(inputs), len(self._inputs))
        self._given = []
        for number, (info, tensor) in enumerate(zip(self._inputs, inputs)):
            place = self._file("input%d" % number)
            with open(place, "wb") as file:
                file.write(tensor.data)
            self._given.append("%s:%s" % (info.name, place))

    def invoke(self) -> None:
        """See Engine. Starts the program, which loads the engine each time; `times_s` measures."""
        words = ["--exportOutput=%s" % self._file("outputs.json"), "--warmUp=0", "--duration=0"]
        self._timed([*words, "--iterations=1"])

    def outputs(self) -> List[TensorData]:
        """See Engine. Six digits of each element, which is what the program writes."""
        found = {str(entry["name"]): entry for entry in _entries(self._file("outputs.json"))}
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
        words = ["--iterations=%d" % plan.min_repeats, "--duration=%d" % math.ceil(min(plan.max_time_s, 60))]
        times = self._timed([*words, "--warmUp=%d" % int(1000 * min(plan.warmup_s, 60)), "--useCudaGraph"])
        return times[: plan.max_repeats]

    def _timed(self, words: Sequence[str]) -> List[float]:
        exported = self._file("times.json")
        engine = ["--loadEngine=%s" % self._file("engine"), "--loadInputs=%s" % ",".join(self._given)]
        self._run("the model", "cannot run", [*engine, "--exportTimes=%s" % exported, *words])
        return times_of(exported)

    def _file(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    def _run(self, path: str, action: str, words: Sequence[str]) -> None:
        try:
            done = subprocess.run(
                [self._path, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST_S,
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
    except (OSError, ValueError) as error:
        raise _odd(path, error) from error
    return entries


def _tensor(info: FileTensor, entry: Any) -> TensorData:
    import numpy

    try:
        shape = tuple(int(size) for size in str(entry["dimensions"]).split("x") if size)
        values = numpy.array(entry["values"], dtype=info.dtype).reshape(shape)
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise _odd("the output %s" % printable(info.name), error) from error
    return TensorData(shape, info.dtype, values.tobytes())


def _odd(path: str, error: BaseException) -> AgentError:
    return fails("trtexec: nothing to read in", path, ValueError(printable(str(error), 200)))
