"""TensorRT's Python API as far as a peer needs it, after the TensorRT Developer Guide, "The Python API".

It computes one thing, `x * 2`, on the addresses it is given, through the driver: what lies on the CPU or was
never written gives wrong numbers or an error.
"""

from __future__ import annotations

import ctypes
import enum

import numpy

__version__ = "10.3.0"
_SHAPE = (1, 8)


class Logger:
    ERROR = 1

    def __init__(self, severity):
        assert severity == self.ERROR


class NetworkDefinitionCreationFlag(enum.IntEnum):
    EXPLICIT_BATCH = 0


class MemoryPoolType(enum.Enum):
    WORKSPACE = 0


class TensorIOMode(enum.Enum):
    INPUT = 1
    OUTPUT = 2


class DataType(enum.Enum):
    FLOAT = 0


def nptype(kind):
    return {DataType.FLOAT: numpy.float32}[kind]


class BuilderFlag(enum.Enum):
    FP16 = 0
    INT8 = 1


class TimingCache:
    def __init__(self, data):
        self.entries = data

    def serialize(self):
        return self.entries


class Builder:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def create_network(self, flags):
        assert flags == 1 << int(NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        return {}

    def create_builder_config(self):
        return Config()

    def build_serialized_network(self, network, config):
        assert config.limits == {MemoryPoolType.WORKSPACE: 256 << 20}
        config.cache.entries += b"+" + b",".join(flag.name.encode() for flag in config.flags)
        return b"plan of " + network["model"]


class Config:
    def __init__(self):
        self.limits = {}
        self.flags = []

    def set_flag(self, flag):
        self.flags.append(flag)

    def create_timing_cache(self, data):
        return None if data.startswith(b"damaged") else TimingCache(data)

    def set_timing_cache(self, cache, ignore_mismatch):
        if cache.entries.startswith(b"of another GPU") and not ignore_mismatch:
            return False
        self.cache = cache
        return True

    def get_timing_cache(self):
        return self.cache

    def set_memory_pool_limit(self, pool, size):
        self.limits[pool] = size


class OnnxParser:
    def __init__(self, network, logger):
        self._network = network
        self.num_errors = 0

    def parse(self, model):
        self._network["model"] = bytes(model[:4])
        self.num_errors = 1 if model.startswith(b"broken") else 0
        return not self.num_errors

    def get_error(self, index):
        return "In node 0 (parseNode): UNSUPPORTED_NODE"


class Runtime:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def deserialize_cuda_engine(self, plan):
        # TensorRT refuses a plan of another GPU, or a damaged one.
        return CudaEngine() if plan.startswith(b"plan of ") else None


class CudaEngine:
    num_io_tensors = 2

    def get_tensor_name(self, index):
        return ("x", "y")[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name == "x" else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name):
        return _SHAPE

    def get_tensor_dtype(self, name):
        return DataType.FLOAT

    def create_execution_context(self):
        return ExecutionContext()


class ExecutionContext:
    def __init__(self):
        self._addresses = {}

    def set_tensor_address(self, name, address):
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        driver = ctypes.CDLL("libcuda.so.1")
        data = numpy.zeros(_SHAPE, numpy.float32)
        place, size = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
        handle = ctypes.c_void_p(stream)
        source = ctypes.c_uint64(self._addresses["x"])
        if driver.cuMemcpyDtoHAsync_v2(place, source, size, handle):
            return False
        data *= 2
        return not driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self._addresses["y"]), place, size, handle)
