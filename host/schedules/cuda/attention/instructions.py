"""What a lane of a program of attention calls beside tensor cores, as functions of CUDA C++."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from host.schedules.cuda.nest import call

_FUNCTION = "static __device__ __forceinline__"


def power_of_two(value: Any) -> Any:
    """2 to the power of a number: PTX ISA 8.5, "ex2.approx.ftz.f32"; 2 ulp, and zero below 2^-126."""
    name = "edgetlm_power_of_two"
    text = f"""{_FUNCTION} float {name}(float value) {{
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;\\n" : "=f"(power) : "f"(value));
  return power;
}}
"""
    return cuda_func_call(name, value, source_code=text, return_type="float32")


def larger_number(value: Any, number: Any) -> Any:
    """The larger of two numbers, and of NaN and a number the number."""
    name = "edgetlm_larger_number"
    text = f"""{_FUNCTION} float {name}(float value, float number) {{
  return fmaxf(value, number);
}}
"""
    return cuda_func_call(name, value, number, source_code=text, return_type="float32")


def _of_quad(name: str, step: str, value: Any) -> Any:
    """A result of the values of the four lanes that have the same rows of a product, in all of them."""
    text = f"""{_FUNCTION} float {name}(float value) {{
  for (int lanes = 1; lanes < 4; lanes *= 2) {{
    const float other = __shfl_xor_sync(0xffffffffu, value, lanes, 32);
    value = {step};
  }}
  return value;
}}
"""
    return cuda_func_call(name, value, source_code=text, return_type="float32")


def quad_largest(value: Any) -> Any:
    """The largest value of a quad."""
    return _of_quad("edgetlm_quad_largest", "other > value ? other : value", value)


def quad_total(value: Any) -> Any:
    """The sum of the values of a quad."""
    return _of_quad("edgetlm_quad_total", "value + other", value)


def pair_of_halves(first: Any, second: Any) -> Any:
    """Two numbers as halves in one register, the first one in its lower half."""
    name = "edgetlm_pair_of_halves"
    text = f"""{_FUNCTION} unsigned int {name}(float first, float second) {{
  const half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned int*>(&pair);
}}
"""
    return cuda_func_call(name, first, second, source_code=text, return_type="uint32")


def load_pair(address: Any) -> Any:
    """Two neighbouring halves of memory in one register."""
    name = "edgetlm_load_pair"
    text = f"""{_FUNCTION} unsigned int {name}(const void* place) {{
  return *static_cast<const unsigned int*>(place);
}}
"""
    return cuda_func_call(name, address, source_code=text, return_type="uint32")


def store_pair(address: Any, pair: Any) -> tirx.Stmt:
    """Stores two halves to neighbouring places in memory."""
    name = "edgetlm_store_pair"
    text = f"""{_FUNCTION} void {name}(void* place, unsigned int pair) {{
  *static_cast<unsigned int*>(place) = pair;
}}
"""
    return call(name, text, address, pair)


def store_number(pool: Any, offset: Any, value: Any) -> tirx.Stmt:
    """Stores a number in shared memory."""
    name = "edgetlm_store_number"
    text = f"""{_FUNCTION} void {name}(void* pool, int offset, float value) {{
  *reinterpret_cast<float*>(static_cast<char*>(pool) + offset) = value;
}}
"""
    return call(name, text, pool, offset, value)


def load_number(pool: Any, offset: Any) -> Any:
    """A number in shared memory."""
    name = "edgetlm_load_number"
    text = f"""{_FUNCTION} float {name}(const void* pool, int offset) {{
  return *reinterpret_cast<const float*>(static_cast<const char*>(pool) + offset);
}}
"""
    return cuda_func_call(name, pool, offset, source_code=text, return_type="float32")
