"""Open dimensions: a compiled model has none, `--shape` gives those that the file leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from host.errors import ShapeError


@dataclass(frozen=True)
class DeclaredInput:
    """An input as the file declares it.

    Attributes:
        name: the model's own name.
        dimensions: numbers, symbols that other inputs may share, or "" for open dimensions without a name;
            None if not even the rank is known.
        dtype: numpy dtype name.
    """

    name: str
    dimensions: tuple[int | str, ...] | None
    dtype: str


def pin(
    model_name: str, declared: Sequence[DeclaredInput], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """A number for every dimension of every input.

    A symbol fixed by one input's shape holds for the others too, so that `--shape ids=1,128` is enough for a
    model whose mask has the same symbols.

    Args:
        model_name: file name, for messages.
        declared: the model's inputs, in order.
        shapes: shapes given by the user, by input name; or one size by the name of a symbol.

    Returns:
        Shape by input name, for all inputs.

    Raises:
        ShapeError: a shape names no input, does not fit, or a dimension stays open.
    """
    by_name = {entry.name: entry for entry in declared}
    known = {size for entry in declared for size in entry.dimensions or () if isinstance(size, str) and size}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name in by_name:
            continue
        if name not in known or len(shape) != 1 or shape[0] < 0:
            names = ", ".join(by_name) or "none"
            also = f" and the open dimensions {', '.join(sorted(known))}" if known else ""
            raise ShapeError(f"{model_name}: --shape names {name!r}, but the inputs are {names}{also}")
        symbols[name] = shape[0]
    for name, shape in shapes.items():
        if name not in by_name:
            continue
        _check_fit(model_name, by_name[name], tuple(shape), symbols)
    return {
        entry.name: tuple(shapes[entry.name]) if entry.name in shapes else _close(model_name, entry, symbols)
        for entry in declared
    }


def pin_with_defaults(
    model_name: str,
    declared: Sequence[DeclaredInput],
    defaults: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int, ...]]:
    """As `pin`, of a model whose sizes have defaults: those hold where the shapes say nothing.

    Args:
        model_name: for messages.
        declared: the model's inputs, in order.
        defaults: size by the name of a symbol.
        shapes: see `pin`.

    Raises:
        ShapeError: see `pin`.
    """
    whole = {name for name, shape in shapes.items() if len(shape) != 1}
    fixed = {
        size
        for one in declared
        if one.name in whole
        for size in one.dimensions or ()
        if isinstance(size, str)
    }
    given = {name: (size,) for name, size in defaults.items() if name not in fixed}
    return pin(model_name, declared, {**given, **shapes})


def _check_fit(
    model_name: str, entry: DeclaredInput, shape: tuple[int, ...], symbols: dict[str, int]
) -> None:
    """Compare a given shape with the declared one and note what its symbols mean."""
    text = ",".join(map(str, shape))
    if any(size < 0 for size in shape):
        raise ShapeError(
            f"{model_name}: --shape {entry.name}={text} has a negative dimension: use positive numbers"
        )
    if entry.dimensions is None:
        return
    wanted = ",".join(str(size) if size != "" else "?" for size in entry.dimensions)
    if len(shape) != len(entry.dimensions):
        raise ShapeError(
            f"{model_name}: --shape {entry.name}={text} has {len(shape)} dimensions, "
            f"the model wants {len(entry.dimensions)}: {entry.name}={wanted}"
        )
    for given, size in zip(shape, entry.dimensions, strict=True):
        if isinstance(size, int) and size != given:
            raise ShapeError(
                f"{model_name}: --shape {entry.name}={text} does not fit, "
                f"the model fixes {entry.name}={wanted}"
            )
        if isinstance(size, str) and size and symbols.setdefault(size, given) != given:
            raise ShapeError(
                f"{model_name}: --shape {entry.name}={text} makes dimension {size!r} {given}, "
                f"but another input makes it {symbols[size]}"
            )


def _close(model_name: str, entry: DeclaredInput, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input that the user gave none for."""
    if entry.dimensions is None:
        raise ShapeError(
            f"{model_name}: input {entry.name!r} has no declared shape: "
            f"give one with --shape {entry.name}=N,..."
        )
    shape = [symbols.get(size, size) if isinstance(size, str) else size for size in entry.dimensions]
    if all(isinstance(size, int) for size in shape):
        return tuple(int(size) for size in shape)
    open_ones = ", ".join(
        repr(size) if size else f"number {i}" for i, size in enumerate(shape) if isinstance(size, str)
    )
    example = ",".join(str(size) if isinstance(size, int) else "N" for size in shape)
    named = [size for size in shape if isinstance(size, str) and size]
    by_name = f", or --shape {named[0]}=1" if named else ""
    raise ShapeError(
        f"{model_name}: input {entry.name!r} has an open dimension ({open_ones}): "
        f"give its size with --shape {entry.name}={example}{by_name}"
    )
