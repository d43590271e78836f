"""TVM's runtime without the `tvm` package: only `tvm_ffi` and libtvm_runtime.so.

`tvm_ffi` imports torch and NumPy if they are installed, which costs 200 MB of resident memory and two
seconds. `load_runtime` prevents these imports unless the process has already imported the modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import sys
from typing import Any, Iterator, Sequence

from device_agent.errors import AgentError
from device_agent.wire.frames import Buffer

RUNTIME_VARIABLE = "EDGETLM_RUNTIME_LIB"
# DLPack's device types of processors and of CUDA GPUs, and the device attribute that says whether one exists.
_CPU, _CUDA, _EXISTS = 1, 2, 0
_OPTIONAL_MODULES = ("torch", "numpy", "ml_dtypes")


def library_path(name: str = "libtvm_runtime.so") -> str:
    """The path of a library of TVM's runtime, found without importing `tvm`.

    `EDGETLM_RUNTIME_LIB` names libtvm_runtime.so where no `tvm` package is installed. The other libraries
    are expected in the same folder.

    Raises:
        AgentError: the library is not found.
    """
    override = os.environ.get(RUNTIME_VARIABLE)
    if override:
        candidates = [
            override if name == "libtvm_runtime.so" else os.path.join(os.path.dirname(override), name)
        ]
    else:
        spec = importlib.util.find_spec("tvm")
        roots = list(spec.submodule_search_locations or ()) if spec else []
        candidates = [os.path.join(root, "lib", name) for root in roots]
    for candidate in candidates:
        if os.path.isfile(candidate):
            return candidate
    where = ", ".join(candidates) or "no package tvm is installed"
    raise AgentError(
        "engine", "%s not found (%s); install apache-tvm or set %s" % (name, where, RUNTIME_VARIABLE)
    )


@contextlib.contextmanager
def _without_optional_modules() -> Iterator[None]:
    # A None entry in sys.modules makes `import torch` raise ImportError, which tvm_ffi handles.
    hidden = [name for name in _OPTIONAL_MODULES if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@functools.lru_cache(maxsize=None)
def load_runtime(extra: bool = False) -> Any:
    """Loads TVM's runtime into the process and returns the module `tvm_ffi`.

    Args:
        extra: also load libtvm_runtime_extra.so (sorting and random numbers).

    Raises:
        AgentError: tvm_ffi or a library is missing.
    """
    try:
        if "tvm_ffi" in sys.modules:
            import tvm_ffi
        else:
            with _without_optional_modules():
                import tvm_ffi
    except ImportError as error:
        raise AgentError("engine", "apache-tvm-ffi is not usable here: %s" % error) from error
    if tvm_ffi.get_global_func("runtime.TVMTensorCopyToBytes", allow_missing=True) is None:
        ctypes.CDLL(library_path(), ctypes.RTLD_GLOBAL)
    if extra and tvm_ffi.get_global_func("tvm.contrib.sort.argsort", allow_missing=True) is None:
        ctypes.CDLL(library_path("libtvm_runtime_extra.so"), ctypes.RTLD_GLOBAL)
    return tvm_ffi


@functools.lru_cache(maxsize=None)
def load_cuda() -> Any:
    """Loads TVM's CUDA runtime into the process and returns the CUDA GPU as a device of TVM.

    The library finds the CUDA runtime library in its own folder, and the driver's library in the system.

    Raises:
        AgentError: the payload has no CUDA runtime, the driver is missing, or the driver finds no GPU.
    """
    ffi = load_runtime()
    if ffi.get_global_func("device_api.cuda", allow_missing=True) is None:
        path = library_path("libtvm_runtime_cuda.so")
        try:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise AgentError(
                "engine", "the CUDA runtime does not load (%s); a Jetson's driver comes with JetPack" % error
            ) from error
    device = ffi.device("cuda", 0)
    if not _global("runtime.GetDeviceAttr")(_CUDA, 0, _EXISTS):
        raise AgentError("engine", "the driver finds no CUDA GPU; deploy with --processor cpu")
    return device


def device_of(kind: str) -> Any:
    """TVM's device of a kind, "cpu" or "cuda", ready for use.

    Raises:
        AgentError: this machine has no such device; the message gives the reason.
    """
    return load_cuda() if kind == "cuda" else load_runtime().device("cpu", 0)


def synchronise(device: Any) -> None:
    """Waits until a device has completed all its work."""
    _global("runtime.Device_StreamSync")(device, 0)


def empty(shape: Sequence[int], dtype: str, device: Any = None) -> Any:
    """An uninitialised tensor of TVM's allocator (64-byte aligned), by default on the CPU."""
    ffi = load_runtime()
    allocate = _global("runtime.TVMTensorAllocWithScope")
    place = device or device_of("cpu")
    return allocate(ffi.Shape(tuple(int(d) for d in shape)), ffi.dtype(dtype), place, None)


def copy_from_buffer(tensor: Any, data: Buffer) -> None:
    """Fills a tensor from row-major bytes, exactly as many as the tensor has."""
    view = memoryview(data)
    if view.nbytes == 0:
        return
    address, keep = _address(view)
    _global("runtime.TVMTensorCopyFromBytes")(tensor, address, view.nbytes)
    del keep


def copy(source: Any, target: Any) -> None:
    """Copies a tensor into another of the same shape and type."""
    _global("runtime.TVMTensorCopyFromTo")(source, target)


def to_bytes(tensor: Any, size: int) -> bytearray:
    """The row-major bytes of a tensor of `size` bytes."""
    data = bytearray(size)
    if size:
        array = (ctypes.c_char * size).from_buffer(data)
        address = ctypes.c_void_p(ctypes.addressof(array))
        _global("runtime.TVMTensorCopyToBytes")(tensor, address, size)
    return data


@functools.lru_cache(maxsize=None)
def _global(name: str) -> Any:
    return load_runtime().get_global_func(name)


def _address(view: memoryview) -> Any:
    # ctypes only gives the address of writable memory. A read-only buffer is therefore copied to a bytes
    # object, whose address ctypes does give.
    if view.readonly or not view.c_contiguous:
        copy = view.tobytes()
        return ctypes.cast(ctypes.c_char_p(copy), ctypes.c_void_p), copy
    array = (ctypes.c_char * view.nbytes).from_buffer(view.cast("B") if view.ndim else view)
    return ctypes.c_void_p(ctypes.addressof(array)), array


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [
    ("dl_tensor", _DLTensor),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", _Deleter),
]


def _release(pointer: Any) -> None:
    producer = ctypes.cast(pointer.contents.manager_ctx, ctypes.py_object)
    ctypes.pythonapi.Py_DecRef(producer)


# C may call this at any later time, so it has to live as long as the process.
_release_callback = _Deleter(_release)


class _View:
    """A producer of one DLPack capsule over memory that Python owns.

    The capsule's consumer holds one reference to this object, and releases the reference with the deleter.
    """

    def __init__(self, address: int, shape: Sequence[int], dtype: str, owner: Any, device: int) -> None:
        kind = load_runtime().dtype(dtype)
        self._owner = owner
        self._dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._managed = _DLManagedTensor()
        self._managed.dl_tensor = _DLTensor(
            address, device, 0, len(shape), kind.type_code, kind.bits, 1, self._dims, None, 0
        )
        self._managed.manager_ctx = id(self)
        self._managed.deleter = _release_callback

    def __dlpack__(self, **_: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return make(ctypes.addressof(self._managed), b"dltensor", None)


def view_of(address: int, shape: Sequence[int], dtype: str, owner: Any, kind: int = _CPU) -> Any:
    """A tensor over memory that somebody else owns, without a copy.

    Args:
        address: address of the first element; 64-byte aligned if compiled code reads it.
        shape: dimensions.
        dtype: name of the element type.
        owner: object that is kept alive as long as the tensor.
        kind: DLPack's device type, of the processor or of the GPU.
    """
    return load_runtime().from_dlpack(_View(address, shape, dtype, owner, kind))
