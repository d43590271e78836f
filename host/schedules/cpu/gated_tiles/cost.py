"""What the estimate of gated products has beside that of products with quantised weights in tiles."""

from __future__ import annotations

from host.schedules.constants import EstimateConstant

# Cycles of a vector of results: of its activation, which stands beside what takes weights apart.
ACTIVATION_CYCLES = EstimateConstant("gated_tiles.activation", 16.0)

CONSTANTS = (ACTIVATION_CYCLES,)
