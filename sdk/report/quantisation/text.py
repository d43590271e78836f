"""What quantising a model with samples, or choosing types of its layers, found out, as text for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.model.numeric_types import NumericTypes
    from host.model.quantisation import OutputError, Quantisation

# Layers that a terminal lists.
_LISTED = 5


def error_text(one: OutputError) -> str:
    """The errors of an output."""
    noise = f"{one.rms:.2%} of its size" if math.isfinite(one.rms) else "not finite"
    parts = [
        f"{one.name} off by {noise} (rms, SNR {one.snr_db:.1f} dB)",
        f"at most {one.largest:.2%} of its largest",
    ]
    if one.cosine is not None:
        parts.append(f"cosine {one.cosine:.5f}")
    if one.agreement is not None:
        parts.append(f"the same class in {one.agreement:.1%}")
    return ", ".join(parts)


def quantisation_lines(one: Quantisation) -> list[str]:
    """What a terminal shows: what was quantised, what that loses, and which layers lose most."""
    done = sum(layer.quantised for layer in one.layers)
    lines = [
        f"quantised {done} of {len(one.layers)} layers to int8, calibrated with {one.samples} samples; "
        f"allowed error {one.bound:g}"
    ]
    lines += [f"{'error' if not n else '':<9} {error_text(error)}" for n, error in enumerate(one.errors)]
    if one.kept:
        fully = max(error.rms for error in one.fully)
        lines.append(f"{'':<9} with every layer quantised it were {fully:.2%}")
    for number, layer in enumerate(one.by_loss()[:_LISTED]):
        state = "" if layer.quantised else ", stays in floats"
        first = "" if number else "loses"
        lines.append(f"{first:<9} {layer.alone:.2%} alone: {layer.name} ({layer.operator}){state}")
    return lines


def type_lines(one: NumericTypes) -> list[str]:
    """What a terminal shows: the types of the layers, and which stay in fp32 although others do not."""
    lines = [f"{one.why} ({one.compiled} models compiled)"]
    kept = [layer for layer in one.by_loss() if not layer.half] if one.dtype != "fp32" else []
    for number, layer in enumerate(kept[:_LISTED]):
        alone = "saves no time" if layer.alone is None else f"{layer.alone:.2g} alone"
        lines.append(f"{'' if number else 'in fp32':<9} {layer.name}: {alone}")
    if len(kept) > _LISTED:
        lines.append(f"{'':<9} and {len(kept) - _LISTED} more")
    return [f"{'types':<9} {lines[0]}", *lines[1:]]
