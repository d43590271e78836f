"""TensorRT, for .onnx files, on the GPU. The engine is built on the board.

JetPack contains the package; where it is not installed, the program `trtexec` takes its place. Source:
TensorRT Developer Guide, "The Python API" (builder, ONNX parser, timing cache, `execute_async_v3`), which is
the same for 8.5 (JetPack 5.1) and newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from typing import Any, Dict, List, Sequence, Union

from device_agent.board.jetson import trtexec
from device_agent.contract.quiet import import_quietly
from device_agent.errors import AgentError
from device_agent.execute.engines import check_count, fails
from device_agent.execute.engines.cuda_memory import CudaMemory
from device_agent.execute.engines.trtexec_engine import TrtexecEngine
from device_agent.wire.frames import TensorData, tensor_bytes

# Scratch memory that the builder may use while it tries tactics.
_WORKSPACE_BYTES = 256 << 20
_MOST_TIMINGS_BYTES = 256 << 20
# Engines that are kept: the size of one, that of all, and how many.
_MOST_PLAN_BYTES, _MOST_PLANS_BYTES, _MOST_PLANS = 2 << 30, 4 << 30, 8
# Of what `_built` asks TensorRT for. A change of it needs another number: engines are kept by it.
_SETTINGS = 1


class TensorrtEngine:
    """One TensorRT engine and its buffers.

    Args:
        package: TensorRT's.
        memory: of the GPU.
        way: "fp16" or "int8", which TensorRT may use then; "" for single precision.
        timings: file in which TensorRT keeps the times of its kernels, for later builds; engines are kept
            beside it.
    """

    def __init__(self, package: Any, memory: CudaMemory, way: str, timings: str) -> None:
        self._package = package
        self._memory = memory
        self._way, self._timings = way, timings
        self._engine: Any = None
        self._context: Any = None
        self._addresses: Dict[str, int] = {}

    def load(self, path: str, threads: int) -> Dict[str, Any]:
        """See Engine. Builds the engine, which may take minutes, where none is kept of this model.

        The number of CPU threads is ignored.
        """
        trt = self._package
        with open(path, "rb") as file:
            model = file.read()
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        kept = os.path.join(os.path.dirname(self._timings), "tensorrt", self._name_of(model))
        plan = _read(kept, _MOST_PLAN_BYTES)
        # TensorRT refuses one of another driver or GPU.
        self._engine = runtime.deserialize_cuda_engine(plan) if plan else None
        if self._engine is None:
            plan = self._built(path, model)
            self._engine = runtime.deserialize_cuda_engine(plan)
            _write(kept, plan, _MOST_PLAN_BYTES)
            _keep_newest(os.path.dirname(kept))
        else:
            with contextlib.suppress(OSError):
                os.utime(kept)
        self._context = self._engine.create_execution_context()
        self._memory.free()
        self._addresses = {}
        for info in self._tensors(inputs=True) + self._tensors(inputs=False):
            address = self._memory.allocate(tensor_bytes(info["shape"], info["dtype"]))
            self._addresses[info["name"]] = address
            self._context.set_tensor_address(info["name"], address)
        return {"inputs": self._tensors(inputs=True), "outputs": self._tensors(inputs=False)}

    def _name_of(self, model: bytes) -> str:
        """The file of an engine, by what it depends on."""
        digest = hashlib.sha256(hashlib.sha256(model).digest())
        version = getattr(self._package, "__version__", "")
        digest.update(json.dumps([self._way, version, self._memory.gpu, _SETTINGS]).encode())
        return digest.hexdigest() + ".plan"

    def _built(self, path: str, model: bytes) -> bytes:
        """The engine of a model, as TensorRT writes it."""
        trt = self._package
        logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        # Since TensorRT 10, this behaviour is always on and the flag no longer exists.
        explicit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
        network = builder.create_network(0 if explicit is None else 1 << int(explicit))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse(model):
            raise fails("tensorrt cannot read", path, ValueError(_first(parser)))
        config = builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        if self._way:
            config.set_flag(getattr(trt.BuilderFlag, self._way.upper()))
        for timings in (_read(self._timings, _MOST_TIMINGS_BYTES), b""):
            cache = config.create_timing_cache(timings)
            # `False` forbids times of another GPU or version: then it begins without any.
            if cache is not None and config.set_timing_cache(cache, False):
                break
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise fails("tensorrt cannot build", path, ValueError("see the agent's log"))
        cache = config.get_timing_cache()
        kept = None if cache is None else cache.serialize()
        if kept is not None:
            _write(self._timings, bytes(kept), _MOST_TIMINGS_BYTES)
        return bytes(plan)

    def bind(self, inputs: Sequence[TensorData]) -> None:
        """See Engine."""
        wanted = self._tensors(inputs=True)
        check_count(len(inputs), len(wanted))
        for info, given in zip(wanted, inputs):
            if tuple(given.shape) != info["shape"] or given.dtype != info["dtype"]:
                raise AgentError(
                    "bad_request",
                    "input %s is %s%s, tensorrt takes %s%s"
                    % (info["name"], given.dtype, list(given.shape), info["dtype"], list(info["shape"])),
                )
            self._memory.write(self._addresses[info["name"]], bytes(given.data))

    def invoke(self) -> None:
        """See Engine."""
        if not self._context.execute_async_v3(self._memory.stream):
            raise AgentError("engine", "tensorrt cannot run the model; see the agent's log")
        self._memory.synchronise()

    def outputs(self) -> List[TensorData]:
        """See Engine."""
        found = []
        for info in self._tensors(inputs=False):
            size = tensor_bytes(info["shape"], info["dtype"])
            data = self._memory.read(self._addresses[info["name"]], size)
            found.append(TensorData(info["shape"], info["dtype"], data))
        return found

    def _tensors(self, inputs: bool) -> List[Dict[str, Any]]:
        import numpy

        trt, engine = self._package, self._engine
        mode = trt.TensorIOMode.INPUT if inputs else trt.TensorIOMode.OUTPUT
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        return [
            {
                "name": name,
                "shape": tuple(int(size) for size in engine.get_tensor_shape(name)),
                "dtype": str(numpy.dtype(trt.nptype(engine.get_tensor_dtype(name)))),
            }
            for name in names
            if engine.get_tensor_mode(name) == mode
        ]


def _first(parser: Any) -> str:
    return str(parser.get_error(0)) if parser.num_errors else "no reason given"


def _read(path: str, most: int) -> bytes:
    """What is kept in a file; nothing where there is none, or more than may be kept."""
    try:
        with open(path, "rb") as file:
            return file.read() if os.fstat(file.fileno()).st_size <= most else b""
    except OSError:
        # The first build on this board.
        return b""


def _keep_newest(folder: str) -> None:
    """Removes the engines that were not used for the longest time, beyond a few."""
    with contextlib.suppress(OSError):
        found = [os.path.join(folder, name) for name in os.listdir(folder)]
        total = 0
        for place, path in enumerate(sorted(found, key=os.path.getmtime, reverse=True)):
            total += os.path.getsize(path)
            if place >= _MOST_PLANS or total > _MOST_PLANS_BYTES:
                os.unlink(path)


def _write(path: str, data: bytes, most: int) -> None:
    """Keeps a file of at most so many bytes. Where it is not kept, the next build takes as long again."""
    if len(data) > most:
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        finally:
            # There is none any more where it took its place.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def create(way: str = "") -> Union[TensorrtEngine, TrtexecEngine]:
    """Creates an engine: by the package, or by the program where there is no package.

    Args:
        way: "fp16" or "int8", which TensorRT may use then; "" for single precision.

    Raises:
        ImportError: neither is there.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    timings = os.path.join(base, "edgetlm", "tensorrt.timings")
    try:
        import numpy  # noqa: F401 - the package uses NumPy's types

        package = import_quietly("tensorrt")
    except ImportError:
        found = trtexec()
        if found is None:
            raise
        return TrtexecEngine(found, way, timings)
    return TensorrtEngine(package, CudaMemory(), way, timings)
