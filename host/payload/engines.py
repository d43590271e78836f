"""Wheels of the engines that a model is compared with on a board, by the board's Python and C library.

The versions are the newest ones that have wheels for that Python: JetPack 6 has 3.10 (glibc 2.35), Raspberry
Pi OS "bookworm" 3.11, JetPack 5 has 3.8 (glibc 2.31). Every pin was looked up in the package index.
"""

from __future__ import annotations

from host.errors import PayloadError
from host.payload.python import ARCHITECTURES
from host.payload.wheels import Part, Platform

OLDEST_PYTHON = (3, 8)
_PYTHONS = "3.8 to 3.14"

# What is only for building extensions, for tests and for type checkers.
_NEVER = ("*/tests/*", "*.pyi", "*.a", "*.h", "*.hpp", "*.pxd", "*.pyx")
_NUMPY = {(3, 8): "1.24.4", (3, 9): "2.0.2", (3, 10): "2.2.6"}
_ONNXRUNTIME = {(3, 8): "1.19.2", (3, 9): "1.19.2", (3, 10): "1.23.2"}
_NEWEST = {"numpy": "2.4.6", "onnxruntime": "1.31.1"}
# Python 3.8 has LiteRT's predecessor only.
_LITERT = {(3, 8): "tflite-runtime==2.13.0", (3, 9): "ai-edge-litert==2.1.0"}
_NCNN = "ncnn==1.0.20260526"
_LITERT_NEWEST = "ai-edge-litert==2.3.0"


def engine_parts(engine: str, platform: Platform) -> tuple[Part, ...]:
    """The wheels of an engine for a platform.

    Raises:
        PayloadError: there are none, with the reason.
    """
    if engine not in ("onnxruntime", "litert", "ncnn"):
        raise PayloadError(
            f"{engine} is not pushed to boards: install it there, the agent uses what it finds"
        )
    if platform.architecture not in ARCHITECTURES:
        raise PayloadError(f"{engine} has no wheels for {platform.architecture}: compare on another board")
    if not OLDEST_PYTHON <= platform.python <= (3, 14):
        raise PayloadError(
            f"{engine} has wheels for Python {_PYTHONS}, the board has {'.'.join(map(str, platform.python))}"
        )
    if engine == "ncnn":
        return (Part(_NCNN, keep=("ncnn/*.py", "ncnn/*.so"), drop=_NEVER), _numpy(platform.python))
    own = _onnxruntime(platform.python) if engine == "onnxruntime" else _litert(platform.python)
    return (*own, _numpy(platform.python))


def _numpy(python: tuple[int, int]) -> Part:
    version = _NUMPY.get(python, _NEWEST["numpy"])
    return Part(f"numpy=={version}", drop=(*_NEVER, "numpy/f2py/*", "numpy-*/*.txt"))


def _onnxruntime(python: tuple[int, int]) -> tuple[Part, ...]:
    version = _ONNXRUNTIME.get(python, _NEWEST["onnxruntime"])
    # Tools for making models; its own dependencies (protobuf, flatbuffers) serve these alone.
    tools = tuple(f"onnxruntime/{name}/*" for name in ("transformers", "quantization", "tools", "datasets"))
    return (Part(f"onnxruntime=={version}", drop=(*_NEVER, *tools, "onnxruntime/*.txt")),)


def _litert(python: tuple[int, int]) -> tuple[Part, ...]:
    requirement = _LITERT.get(python, _LITERT_NEWEST)
    name = "tflite_runtime" if requirement.startswith("tflite") else "ai_edge_litert"
    # The interpreter and what it imports; not the compiler for accelerators and their drivers.
    keep = (f"{name}/*.py", f"{name}/*.so", f"{name}-*.dist-info/METADATA")
    others = tuple(f"{name}/{folder}/*" for folder in ("aot", "tools", "vendors"))
    return (Part(requirement, keep=keep, drop=(*_NEVER, *others, f"{name}/*WebGpu*")),)
