"""The numeric types that a model can be compiled in, by the option `--dtype`."""

from __future__ import annotations

from host.errors import UserError

# The types of layers are searched for; until then, tensors are what they are.
AUTO = "auto"
# What tensors of single precision lie in memory as; "" for what they are.
_HALVES = {"fp32": "", "fp16": "float16", "bf16": "bfloat16", AUTO: ""}
DTYPES = tuple(_HALVES)


def half_of(dtype: str) -> str:
    """The type in which a model's tensors lie in memory, by the option `--dtype`; "" for single precision."""
    return _HALVES[dtype]


def check_type(dtype: str, processor: str, ranged: bool, searched: bool) -> None:
    """Refuse a type that does not go with other options.

    Args:
        dtype: the option `--dtype`.
        processor: the option `--processor`.
        ranged: whether a range of lengths is asked for.
        searched: whether the command can search for the types of layers, for which it runs models.

    Raises:
        UserError: says what to type instead.
    """
    if dtype == AUTO and not searched:
        raise UserError(
            "--dtype auto compares outputs on a device: use sdk deploy, or give fp32, fp16 or bf16 here"
        )
    if dtype != "fp32" and ranged:
        raise UserError(f"--dtype {dtype} does not go with a range of lengths: leave one of them out")
    if dtype in ("bf16", AUTO) and processor == "gpu":
        raise UserError(f"--dtype {dtype} is for the CPU: use --dtype fp16 with --processor gpu")
