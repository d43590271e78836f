"""Programs for GPUs as text of TVMScript, and what the lanes of a warp tell each other in them."""

from __future__ import annotations

from typing import Any

from tvm.backend.cuda.op import cuda_func_call

WARP = 32
_HEAD = "static __device__ __forceinline__ float"


def bound(blocks: int, warps: int, name: str) -> list[str]:
    """Text of the loops over `block`, `warp` and `lane` around a body, which is indented by 16."""
    return [
        f'for block in T.thread_binding({blocks}, thread="blockIdx.x"):',
        f'    for warp in T.thread_binding({warps}, thread="threadIdx.y"):',
        f'        for lane in T.thread_binding({WARP}, thread="threadIdx.x"):',
        f'            with T.sblock("{name}"):',
        "                T.reads()",
        "                T.writes()",
    ]


def _exchange(name: str, step: str) -> str:
    """C++ of a function that leaves each lane of a warp with a result of all lanes' values."""
    return f"""{_HEAD} {name}(float value) {{
  for (int lanes = 16; lanes > 0; lanes /= 2) {{
    const float other = __shfl_xor_sync(0xffffffffu, value, lanes, 32);
    value = {step};
  }}
  return value;
}}
"""


def _largest(value: Any) -> Any:
    """The largest of the values of a warp's lanes."""
    name = "edgetlm_warp_largest"
    text = _exchange(name, "other > value ? other : value")
    return cuda_func_call(name, value, source_code=text, return_type="float32")


def _total(value: Any) -> Any:
    """The sum of the values of a warp's lanes."""
    name = "edgetlm_warp_total"
    return cuda_func_call(name, value, source_code=_exchange(name, "value + other"), return_type="float32")


def _of_lane(value: Any, lane: Any) -> Any:
    """The value of one lane of a warp, in all of them."""
    name = "edgetlm_of_lane"
    text = (
        f"{_HEAD} {name}(float value, int lane) {{\n  return __shfl_sync(0xffffffffu, value, lane, 32);\n}}\n"
    )
    return cuda_func_call(name, value, lane, source_code=text, return_type="float32")


# Types of numbers that lanes exchange, in C++.
_EXCHANGED = {"float32": "float", "int32": "int", "int64": "int64_t"}


def is_exchanged(dtype: str) -> bool:
    """Whether lanes can tell each other numbers of a type."""
    return dtype in _EXCHANGED


def of_other_lane(value: Any, dtype: str, lanes: int) -> Any:
    """The value of the lane whose number differs in a bit.

    Args:
        value: of each lane.
        dtype: of the value, one that is exchanged.
        lanes: the bit, a power of two below a warp's lanes.
    """
    kind, name = _EXCHANGED[dtype], f"edgetlm_of_other_lane_{dtype}"
    text = (
        f"static __device__ __forceinline__ {kind} {name}({kind} value, int lanes) {{\n"
        "  return __shfl_xor_sync(0xffffffffu, value, lanes, 32);\n}\n"
    )
    return cuda_func_call(name, value, lanes, source_code=text, return_type=dtype)


# For `put_script`: functions that all lanes of a warp call together.
WARP_FUNCTIONS = {"largest": _largest, "total": _total, "of_lane": _of_lane}
