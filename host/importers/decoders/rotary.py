"""Frequencies of rotary position embeddings: plain, linear, dynamic, Llama 3, YaRN and LongRoPE (short).

Sources: Su et al., RoFormer (2021); Chen et al., position interpolation (2023); Peng et al., YaRN (2023);
Ding et al., LongRoPE (2024); the Llama 3.1 model card for its interpolation between wavelengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from host.importers.decoders.config import MAX_POSITIONS, Config
from host.importers.decoders.description import Rotary

_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
# Fields that each kind reads; anything else is refused.
_KINDS = {
    "default": set(),
    "linear": {"factor"},
    # Beyond the positions of the model alone it is another rotation, and no context goes there.
    "dynamic": {"factor", "original_max_position_embeddings"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "original_max_position_embeddings",
    },
    "longrope": {
        "factor",
        "attention_factor",
        "short_factor",
        "long_factor",
        "original_max_position_embeddings",
    },
}


def rope_parameters(config: Config) -> dict[str, Any]:
    """The parameters as one object, whether the config has them in the old form or the new one."""
    for name in ("rope_scaling", "rope_parameters"):
        if config.has(name) and config.object(name, 64).values:
            found = dict(config.values[name])
            break
    else:
        found = {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if found.get(name) is None and config.has(name):
            found[name] = config.values[name]
    return found


def read_rotary(
    config: Config,
    values: Mapping[str, Any],
    head_size: int,
    *,
    theta: float = 10000.0,
    partial: bool = False,
) -> tuple[Rotary, int]:
    """The rotation of one kind of layers.

    Args:
        config: of the model.
        values: parameters of the rotation.
        head_size: elements of a head.
        theta: the base where there is none.
        partial: whether the architecture can rotate a part of each head.

    Returns:
        The rotation, and the positions that it serves; 0 for as many as the model.

    Raises:
        ImportFailed: a kind or a parameter that is not implemented.
        ModelFileError: a parameter that is out of range.
    """
    fields = Config(f"{config.where}: rotary embedding", values)
    kind = fields.text("rope_type", 40, fields.text("type", 40, "default"))
    if kind not in _KINDS:
        raise config.unsupported(f"rotary embedding {kind!r}")
    for name, value in values.items():
        if value is not None and name not in _COMMON | _KINDS[kind]:
            raise config.unsupported(f"{name!r} of rotary embedding {kind!r}")
    share = fields.number("partial_rotary_factor", 1e-3, 1.0, 1.0)
    if share != 1.0 and not partial:
        raise config.unsupported(f"partial_rotary_factor {share:g}")
    rotated = int(head_size * share)
    if rotated < 2 or rotated % 2:
        raise config.unsupported(f"a rotation of {rotated} elements of a head")
    base = fields.number("rope_theta", 1.0, 1e12, theta)
    plain = base ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    if kind == "default":
        return Rotary(tuple(plain.tolist())), 0
    if kind == "longrope":
        return _longrope(config, fields, plain)
    factor = fields.number("factor", 1e-3, 1e6)
    if kind == "dynamic":
        return Rotary(tuple(plain.tolist())), 0
    if kind == "linear":
        return Rotary(tuple((plain / factor).tolist())), 0
    make = _llama3 if kind == "llama3" else _yarn
    return make(fields, plain, factor, _trained_positions(config, fields), base), 0


def _trained_positions(config: Config, fields: Config) -> int:
    """Positions of the model before its context was made longer."""
    name = "original_max_position_embeddings"
    most = config.whole("max_position_embeddings", 1, MAX_POSITIONS)
    return config.whole(name, 1, MAX_POSITIONS, fields.whole(name, 1, MAX_POSITIONS, most))


def _llama3(fields: Config, plain: np.ndarray, factor: float, trained: int, base: float) -> Rotary:
    """Long waves are stretched by `factor`, short ones are not, and between them it is interpolated."""
    low = fields.number("low_freq_factor", 1e-3, 1e6)
    high = fields.number("high_freq_factor", 1e-3, 1e6)
    if high <= low:
        raise fields.error("high_freq_factor is not above low_freq_factor")
    turns = trained * plain / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return Rotary(tuple((plain * (share + (1 - share) / factor)).tolist()))


def _yarn(fields: Config, plain: np.ndarray, factor: float, trained: int, base: float) -> Rotary:
    """Pairs with many turns within the trained context stay, those with few are stretched."""
    pairs = len(plain)
    ends = []
    for name, standard in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        turns = fields.number(name, 1e-3, 1e6, standard)
        ends.append(pairs * math.log(trained / (turns * 2 * math.pi)) / math.log(max(base, 1.0001)))
    first, last = ends
    if fields.truth("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    ramp = np.clip((np.arange(pairs) - first) / (last - first if last != first else 1e-3), 0.0, 1.0)
    scale = fields.number("attention_factor", 1e-3, 1e3, _yarn_scale(fields, factor))
    return Rotary(tuple((plain * (1 - ramp) + plain / factor * ramp).tolist()), scale)


def _yarn_scale(fields: Config, factor: float) -> float:
    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    first, second = (fields.number(name, 0.0, 1e3, 0.0) for name in ("mscale", "mscale_all_dim"))
    return scale(first) / scale(second) if first and second else scale(1.0)


def _longrope(config: Config, fields: Config, plain: np.ndarray) -> tuple[Rotary, int]:
    """The short form alone: beyond the trained context all positions would be rotated anew."""
    trained = _trained_positions(config, fields)
    most = config.whole("max_position_embeddings", 1, MAX_POSITIONS)
    short = np.asarray(fields.numbers("short_factor", MAX_POSITIONS), np.float64)
    if short.shape != plain.shape or not (short > 0).all():
        raise fields.error(f"short_factor has not {len(plain)} numbers above 0")
    factor = fields.number("factor", 1e-3, 1e6, most / trained)
    usual = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 and trained > 1 else 1.0
    scale = fields.number("attention_factor", 1e-3, 1e3, usual)
    return Rotary(tuple((plain / short).tolist()), scale), min(trained, most)
