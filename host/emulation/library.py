"""A shared library for aarch64 or riscv64, put in its place for an emulator that has no loader.

Layout: the ELF specification for 64 bits; relocations: "ELF for the Arm 64-bit Architecture", section 5.7,
and "RISC-V ELF Specification", chapter 8.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from host.errors import EngineError

PAGE = 0x1_0000
# Where the library is put.
BASE = 0x1000_0000
_LOAD, _DYNAMIC = 1, 2
_STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATION_BYTES, _JUMPS, _JUMP_BYTES, _HASH = (
    5,
    6,
    7,
    8,
    23,
    2,
    0x6FFFFEF5,
)
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
# Number of each machine, and kinds of relocations: the address of a symbol, and of a place in the library.
_MACHINES = {
    183: ("aarch64", (257, 1025, 1026), 1027),
    243: ("riscv64", (2, 5), 3),
}
_FUNCTION_PREFIX = "__tvm_ffi_"
# Variables of a library into which its loader writes the runtime's functions.
_POINTER_PREFIX = "__TVM"


class SharedLibrary:
    """A library, relocated to `BASE`.

    Attributes:
        architecture: "aarch64" or "riscv64".
        segments: address in the library and bytes of each.
        memory_bytes: that it takes, whole pages.
        calls: by name of a function that it calls, where the function's address has to stand.

    Args:
        content: of the file.

    Raises:
        EngineError: it is none that can be run here.
    """

    def __init__(self, content: bytes) -> None:
        (machine,) = struct.unpack_from("<H", content, 18)
        if content[:5] != b"\x7fELF\x02" or machine not in _MACHINES:
            raise EngineError("kernels are emulated out of libraries for aarch64 and riscv64 only")
        self.architecture, self._of_symbols, self._relative = _MACHINES[machine]
        self._content = content
        (headers,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        entries = [struct.unpack_from("<IIQQQQQQ", content, headers + i * size) for i in range(count)]
        loaded = [entry for entry in entries if entry[0] == _LOAD]
        self._places = [(entry[3], entry[2], entry[5]) for entry in loaded]
        top = max(entry[3] + entry[6] for entry in loaded)
        self.memory_bytes = (top + PAGE - 1) // PAGE * PAGE
        self._memory = bytearray(self.memory_bytes)
        for address, offset, stored in self._places:
            self._memory[address : address + stored] = content[offset : offset + stored]
        self.calls: dict[str, list[int]] = {}
        dynamic = next((entry for entry in entries if entry[0] == _DYNAMIC), None)
        if dynamic is None:
            raise EngineError("the library has no dynamic section: it is no shared library")
        self._tables = dict(struct.iter_unpack("<qQ", content[dynamic[2] : dynamic[2] + dynamic[5]]))
        self._functions: dict[str, int] = {}
        self._read_symbols()
        self._relocate()

    @property
    def segments(self) -> list[tuple[int, bytes]]:
        """The library's memory, relocated."""
        return [(0, bytes(self._memory))]

    def function(self, name: str) -> int:
        """Address of a kernel in the library.

        Raises:
            EngineError: there is none of this name.
        """
        if name not in self._functions:
            raise EngineError(f"the library has no kernel {name}")
        return self._functions[name]

    def _symbol(self, index: int) -> tuple[str, int, int]:
        """Name, section (0 for a symbol of another library) and address."""
        at = self._tables[_SYMBOLS] + index * _SYMBOL.size
        name, _, _, section, value, _ = _SYMBOL.unpack_from(self._memory, at)
        start = self._tables[_STRINGS] + name
        end = self._memory.index(b"\0", start)
        return self._memory[start:end].decode(), section, value

    def _read_symbols(self) -> None:
        for name, section, value in map(self._symbol, range(self._symbol_count())):
            if section and name.startswith(_FUNCTION_PREFIX):
                self._functions[name.removeprefix(_FUNCTION_PREFIX)] = value
            elif section and name.startswith(_POINTER_PREFIX):
                self.calls.setdefault(name.removeprefix("__"), []).append(value)

    def _symbol_count(self) -> int:
        """From the hash table (GNU style): the end of the chain of the highest bucket."""
        table = self._tables[_HASH]
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self._memory, table)
        start = table + 16 + 8 * bloom
        highest = max(struct.unpack_from(f"<{buckets}I", self._memory, start))
        if highest < first:
            return int(first)
        chain = start + 4 * buckets
        while not struct.unpack_from("<I", self._memory, chain + 4 * (highest - first))[0] & 1:
            highest += 1
        return int(highest) + 1

    def _relocations(self) -> Iterator[tuple[int, int, int]]:
        for table, size in ((_RELOCATIONS, _RELOCATION_BYTES), (_JUMPS, _JUMP_BYTES)):
            if table in self._tables:
                start = self._tables[table]
                yield from _RELOCATION.iter_unpack(self._memory[start : start + self._tables[size]])

    def _relocate(self) -> None:
        for place, info, addend in list(self._relocations()):
            kind, index = info & 0xFFFF_FFFF, info >> 32
            if kind == self._relative:
                struct.pack_into("<Q", self._memory, place, BASE + addend)
                continue
            if kind not in self._of_symbols:
                raise EngineError(f"the library has a relocation of kind {kind}, which is not known here")
            name, section, value = self._symbol(index)
            if section:
                struct.pack_into("<Q", self._memory, place, BASE + value + addend)
            else:
                self.calls.setdefault(name, []).append(place)
