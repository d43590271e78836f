"""Which rails are the whole: a total alone, or an explicit list; never a sum of a total and its parts.

Rails are named exactly as NVIDIA's developer guide names them (Jetson Linux Developer Guide, "Power Monitor"
/ "Software-Based Power Consumption Modeling"); a name that merely contains another says nothing:
VDD_CPU_GPU_CV is neither the CPU's nor the GPU's.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence


class Total(NamedTuple):
    """Rails that are the whole when they are all there.

    Attributes:
        rails: whose sum it is.
        boundary: what they supply.
    """

    rails: Sequence[str]
    boundary: str


# In this order: a rail that is the total comes before any list.
TOTALS = (
    Total(("VDD_IN",), "module"),  # Xavier NX, Orin NX, Orin Nano
    Total(("POM_5V_IN",), "module"),  # Nano
    Total(("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), "module"),  # AGX Orin; VDDQ hangs off VIN_SYS_5V0
    Total(("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"), "module"),  # AGX Xavier, two chips
    Total(("VIN",), "board"),  # Thor, at the carrier's input
)


def total_of(found: Sequence[str], board: Optional[Dict[str, Any]]) -> Total:
    """The rails to sum.

    Args:
        found: names of the rails of this machine.
        board: facts of the board; its `rails` and `boundary` are preferred to the rules of this file.

    Raises:
        ValueError: no rule fits; the message says what to do.
    """
    double = sorted({name for name in found if list(found).count(name) > 1})
    if double:
        raise ValueError(
            "two rails are called %s: the board's description cannot distinguish them" % double[0]
        )
    wanted: List[str] = [str(name) for name in (board or {}).get("rails", [])]
    if wanted:
        missing = [name for name in wanted if name not in found]
        if missing:
            raise ValueError(
                "board %s has no rail %s; there are %s"
                % ((board or {}).get("name"), ", ".join(missing), ", ".join(found) or "none")
            )
        return Total(tuple(wanted), str((board or {}).get("boundary") or "unknown"))
    for total in TOTALS:
        if all(name in found for name in total.rails):
            return total
    raise ValueError(
        "none of the rails %s is known to be the total; name `rails` and `boundary` in the board's file"
        % (", ".join(found) or "(none)")
    )
