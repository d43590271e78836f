"""Options as keywords: the names and types of the fields of `CompileOptions` and `DeployOptions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    tolerance: float | None
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
        TypeError: no field has this name, or sizes are text.
    """
    known = {option.name for option in fields(options)} - {"model"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise TypeError(f"no option {unknown[0]!r}: {type(options).__name__} has {', '.join(sorted(known))}")
    return replace(options, **{name: as_field(name, value) for name, value in settings.items()})


def as_field(name: str, value: Any) -> Any:
    """A value as the field has it: callers give lists, one where there may be several, and paths as text.

    Args:
        name: of the field.
        value: that a caller gave.

    Raises:
        TypeError: sizes of an input are text.
    """
    if name in ("shapes", "values"):
        return {key: _numbers(name, key, one) for key, one in (value or {}).items()}
    if name in ("peer_files", "peer_pythons"):
        return {key: Path(path) for key, path in (value or {}).items()}
    if value is None:
        return None
    if name in ("bundle", "calibration", "text"):
        return Path(value)
    if name in ("lengths", "peers", "power_modes", "beside"):
        return tuple(_several(value))
    return str(value) if name == "records" else value


def _several(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)


def _numbers(name: str, key: str, given: Any) -> tuple[Any, ...]:
    """Sizes or values of an input: numbers of Python, also where those of NumPy were given, and ranges."""
    found = [tuple(one) if isinstance(one, list) else one for one in _several(given)]
    numbers = tuple(one.item() if hasattr(one, "item") else one for one in found)
    if any(isinstance(one, str) for one in numbers):
        raise TypeError(f"{name}: {key!r} is {given!r}: give numbers, as in {{{key!r}: (1, 128)}}")
    return numbers
