"""What a model is compiled for, and the cost of a program that follows from it."""

from __future__ import annotations

OBJECTIVES = ("latency", "energy", "edp")
# By objective. Joules are seconds x watts. Joules x seconds are seconds^2 x watts, and order programs as the
# square root of that does: seconds x watts^(1/2).
_EXPONENTS = {"latency": 0.0, "energy": 1.0, "edp": 0.5}


def power_exponent(objective: str) -> float:
    """The exponent a in the cost of a program, seconds x (watts / reference watts)^a.

    Args:
        objective: one of `OBJECTIVES`.
    """
    return _EXPONENTS[objective]
