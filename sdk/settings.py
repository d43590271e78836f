"""Options as keywords: the names and types of the fields of `CompileOptions` and `DeployOptions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from host.options import CompileOptions, Number, Size

if TYPE_CHECKING:
    from host.schedules.proposer import Proposer


class CompileSettings(TypedDict, total=False):
    """Fields of `CompileOptions`, which documents them."""

    backend: str
    processor: str
    dtype: str
    quantize: str
    group: int
    asymmetric: bool
    calibration: str | Path | None
    quantize_error: float
    context_tokens: int | None
    cache: str
    sequences: int
    text: str | Path | None
    memory_cap_bytes: int
    cuda: str
    trials: int
    budget_s: float
    train: bool
    wait_s: float
    reconnect_s: float
    engine: str
    proposer: str | Proposer
    method: str
    records: str
    threads: int
    shapes: Mapping[str, tuple[Size, ...]] | None
    values: Mapping[str, tuple[Number, ...]] | None
    lengths: Sequence[int]
    seed: int
    name: str
    command: str


class DeploySettings(CompileSettings, total=False):
    """Fields of `DeployOptions`, which documents them."""

    device: str
    peers: Sequence[str] | None
    peer_files: Mapping[str, Path] | None
    peer_pythons: Mapping[str, Path] | None
    objective: str
    power_cap_w: float | None
    power_modes: Sequence[str]
    bundle: str | Path | None
    min_speedup: float | None
    max_latency_ms: float | None
    max_energy_mj: float | None
    max_error: float | None
    max_bundle_bytes: int
    beside: Sequence[str]
    rounds: int
    plans: int
    install: bool


_Options = TypeVar("_Options", bound=CompileOptions)


def with_settings(options: _Options, settings: Mapping[str, Any]) -> _Options:
    """The options with what a caller gives as keywords; sequences become tuples, paths `Path`.

    Raises:
        TypeError: no field has this name.
    """
    known = {option.name for option in fields(options)} - {"model"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise TypeError(f"no option {unknown[0]!r}: {type(options).__name__} has {', '.join(sorted(known))}")
    return replace(options, **{name: _as_field(name, value) for name, value in settings.items()})


def _as_field(name: str, value: Any) -> Any:
    if name in ("shapes", "values", "peer_files", "peer_pythons"):
        return dict(value or {})
    if name in ("bundle", "calibration"):
        return Path(value) if value is not None else None
    return tuple(value) if isinstance(value, list) else value
