"""Writes the data of device_agent/contract as headers for C++.

`contract/limits.h` has bounds, sizes of elements and hidden characters, `contract/measuring.h` how
measurements are made, `contract/protocol.h` names, numbers and times of the protocols.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from device_agent.contract.limits import LIMITS
from device_agent.contract.measuring import KERNEL_ENERGY, MEASURING, KernelPlan, Plan, VariantPlan
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.text import is_hidden

# Of the protocols that C++ speaks.
_SECTIONS = ("json", "text", "wire", "bundle")
_LAST_CHARACTER = 0x10FFFF


_MADE = ("// Made of device_agent/contract by host/payload/contract_header.py.", "#pragma once", "")


def contract_headers() -> dict[str, str]:
    """The headers' contents by name."""
    return {
        "contract/limits.h": _limits_header(),
        "contract/measuring.h": _measuring_header(),
        "contract/protocol.h": _protocol_header(),
    }


def write_headers(folder: Path) -> None:
    """Write the headers into a folder that C++ includes from."""
    for name, content in contract_headers().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


@functools.cache
def _limits_header() -> str:
    """The content of `contract/limits.h`."""
    lines = [
        *_MADE,
        "#include <cstdint>",
        "",
        "namespace edgetlm {",
        "namespace limits {",
    ]
    for section in _SECTIONS:
        bounds = getattr(LIMITS, section)._asdict()
        lines += [f"namespace {section} {{"]
        lines += [f"inline constexpr int64_t {name} = INT64_C({value});" for name, value in bounds.items()]
        lines += [f"}}  // namespace {section}"]
    lines += [
        "}  // namespace limits",
        "",
        "struct ItemBytes {",
        "  const char* dtype;",
        "  int64_t bytes;",
        "};",
        "inline constexpr ItemBytes kItemBytes[] = {",
        *(f'    {{"{dtype}", {size}}},' for dtype, size in LIMITS.item_bytes.items()),
        "};",
        "",
        "// From the first to the last, in order.",
        "struct CharacterRange {",
        "  uint32_t first;",
        "  uint32_t last;",
        "};",
        *_table("kHiddenCharacters", is_hidden),
        *_table("kSpaceCharacters", str.isspace),
        "",
        "}  // namespace edgetlm",
        "",
    ]
    return "\n".join(lines)


def _table(name: str, wanted: Callable[[str], bool]) -> Iterator[str]:
    yield f"inline constexpr CharacterRange {name}[] = {{"
    first = None
    for code in range(_LAST_CHARACTER + 2):
        if code <= _LAST_CHARACTER and wanted(chr(code)):
            first = code if first is None else first
        elif first is not None:
            yield f"    {{0x{first:x}, 0x{code - 1:x}}},"
            first = None
    yield "};"


@functools.cache
def _measuring_header() -> str:
    """The content of `contract/measuring.h`: constants, plans with their defaults, tables of their fields."""
    lines = [
        *_MADE,
        "#include <cstdint>",
        "#include <variant>",
        "",
        "namespace edgetlm {",
        "namespace measuring {",
        *(f"inline constexpr {_declared(name, value)}" for name, value in MEASURING._asdict().items()),
        "}  // namespace measuring",
        "",
        "template <typename P>",
        "struct PlanField {",
        "  const char* name;",
        "  std::variant<double P::*, int64_t P::*, bool P::*> member;",
        "};",
        "",
        *_structure("Plan", Plan()._asdict()),
        *_structure("KernelPlan", KernelPlan()._asdict()),
        *_structure("VariantPlan", VariantPlan()._asdict()),
        "// The windows of energy of a single kernel.",
        "inline Plan kernel_energy() {",
        "  Plan plan;",
        *(f"  plan.{name} = {_written(value)};" for name, value in KERNEL_ENERGY._asdict().items()),
        "  return plan;",
        "}",
        "",
        "}  // namespace edgetlm",
        "",
    ]
    return "\n".join(lines)


def _protocol_header() -> str:
    """The content of `contract/protocol.h`."""
    lines = [*_MADE, "#include <cstdint>", "", "namespace edgetlm {", "namespace protocol {"]
    for section, values in PROTOCOL._asdict().items():
        lines += [f"namespace {section} {{"]
        lines += [f"inline constexpr {_declared(*one)}" for one in values._asdict().items()]
        lines += [f"}}  // namespace {section}"]
    return "\n".join([*lines, "}  // namespace protocol", "}  // namespace edgetlm", ""])


def _structure(name: str, defaults: Mapping[str, float | int | bool]) -> Iterator[str]:
    yield f"struct {name} {{"
    yield from (f"  {_declared(field, value)}" for field, value in defaults.items())
    yield "};"
    yield f"inline constexpr PlanField<{name}> k{name}Fields[] = {{"
    yield from (f'    {{"{field}", &{name}::{field}}},' for field in defaults)
    yield "};"
    yield ""


def _declared(name: str, value: float | int | bool | str | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"const char* const {name}[] = {{{', '.join(map(json.dumps, value))}}};"
    if isinstance(value, str):
        return f"char {name}[] = {json.dumps(value)};"
    kind = "bool" if isinstance(value, bool) else "int64_t" if isinstance(value, int) else "double"
    return f"{kind} {name} = {_written(value)};"


def _written(value: float | int | bool) -> str:
    """A value as C++ writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"INT64_C({value})" if isinstance(value, int) else repr(value)
