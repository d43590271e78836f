"""The little of the ELF format that the linker needs: what a 64-bit object leaves undefined."""

from __future__ import annotations

import struct

from host.errors import BuildError

# Values of the ELF specification (Tool Interface Standard, version 1.2, and the 64-bit supplement).
_SECTION_SYMBOLS = 2
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


def machine_of(content: bytes) -> str:
    """Architecture of an ELF file.

    Raises:
        BuildError: not a little-endian 64-bit ELF file of a known machine.
    """
    if content[:6] != b"\x7fELF\x02\x01" or len(content) < 64:
        raise BuildError("not a 64-bit ELF object; remove the kernel cache and build again")
    number = struct.unpack_from("<H", content, 18)[0]
    if number not in _MACHINES:
        raise BuildError(f"ELF object of unknown machine {number}")
    return _MACHINES[number]


def undefined_symbols(content: bytes) -> set[str]:
    """Names that a relocatable object expects others to define.

    Raises:
        BuildError: not an ELF object of a known machine.
    """
    machine_of(content)
    table_offset = struct.unpack_from("<Q", content, 40)[0]
    entry_size, count = struct.unpack_from("<HH", content, 58)
    headers = [_SECTION_HEADER.unpack_from(content, table_offset + i * entry_size) for i in range(count)]
    names: set[str] = set()
    for _, kind, _, _, offset, size, link, _, _, _ in headers:
        if kind != _SECTION_SYMBOLS:
            continue
        strings = headers[link][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(content, at)
            if section == 0 and name:
                end = content.index(b"\0", strings + name)
                names.add(content[strings + name : end].decode())
    return names
