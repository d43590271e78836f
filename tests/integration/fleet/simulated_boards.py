"""A simulated board on which small models take milliseconds.

A window of measuring is filled with runs, and the simulation computes the time, heat and power of each. On a
board that is nearly as fast as this machine, a model of microseconds runs a hundred thousand times a tuning.
"""

from __future__ import annotations

from pathlib import Path

_EXAMPLE = Path(__file__).parents[3] / "examples" / "replay" / "small_board.toml"
_FACTOR, _SLOWER = "factor = 3.0\n", "factor = 100.0\n"


def slow_board(path: Path) -> str:
    """The example's board, slower; the name of the device.

    Args:
        path: of its file, which is written.
    """
    text = _EXAMPLE.read_text()
    assert _FACTOR in text
    path.write_text(text.replace(_FACTOR, _SLOWER))
    return f"replay:{path}"
