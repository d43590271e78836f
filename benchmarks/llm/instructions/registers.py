"""How many registers the instructions of RISC-V's vectors work on.

One instruction takes a group of up to eight registers, and twice as many where its results are twice as wide:
counts of instructions alone say little of what a core's units have to do. Fields and numbers are those of the
"V" Vector Extension 1.0, sections 3.4, 7 and 10 to 16.
"""

from __future__ import annotations

from host.errors import EngineError

_LOAD, _STORE, _VECTOR = 0x07, 0x27, 0x57
_SET_TYPE, _IMMEDIATE = 7, 3
_ELEMENT_BITS = {0: 8, 5: 16, 6: 32, 7: 64}
_MASKS_ARE_MOVED, _WHOLE = 0b01011, 0b01000
# By funct3: integers of vectors, of a vector and an immediate or a scalar, and the others.
_OPIVV, _OPFVV, _OPMVV, _OPIVI = 0, 1, 2, 3
_MULTIPLIERS = {0: 1.0, 1: 2.0, 2: 4.0, 3: 8.0, 5: 0.125, 6: 0.25, 7: 0.5}
_FIRST_WIDENING, _NARROWING = 0b110000, range(0b101100, 0b110000)
_SCALAR_MOVE, _CONVERSION, _WHOLE_MOVE = 0b010000, 0b010010, 0b100111


class Registers:
    """Counts registers along a program as it runs.

    Attributes:
        total: registers so far.

    Args:
        image: of the program in memory.
        base: its address.
    """

    def __init__(self, image: bytes, base: int) -> None:
        self.total = 0
        self._image, self._base = image, base
        self._type = 0
        # By address: registers by the type of vectors, as the same instruction is run again and again.
        self._known: dict[tuple[int, int], int] = {}
        self._types: dict[int, int | None] = {}

    def executed(self, address: int) -> None:
        """Counts the instruction at an address.

        Raises:
            EngineError: it is one that is not known here.
        """
        if address not in self._types:
            self._types[address] = self._new_type(address)
        changed = self._types[address]
        if changed is not None:
            self._type = changed
            return
        key = (address, self._type)
        if key not in self._known:
            self._known[key] = _registers(self._word(address), self._type)
        self.total += self._known[key]

    def _word(self, address: int) -> int:
        at = address - self._base
        return int.from_bytes(self._image[at : at + 4], "little")

    def _new_type(self, address: int) -> int | None:
        """The type of vectors that an instruction sets, or None of any other."""
        word = self._word(address)
        if word & 0x7F != _VECTOR or word >> 12 & 7 != _SET_TYPE:
            return None
        if not word >> 31:
            return word >> 20 & 0x7FF
        if word >> 30 == _IMMEDIATE:
            return word >> 20 & 0x3FF
        raise EngineError(f"the type of vectors is in a register at {address:#x}, which is not known here")


def _registers(word: int, kind: int) -> int:
    """Registers of one instruction; none of an instruction without vectors."""
    opcode, function = word & 0x7F, word >> 12 & 7
    multiplier, element = _MULTIPLIERS[kind & 7], 8 << (kind >> 3 & 7)
    if opcode in (_LOAD, _STORE) and function in _ELEMENT_BITS:
        return _moved(word, _ELEMENT_BITS[function] / element * multiplier)
    if opcode != _VECTOR:
        return 0
    operation = word >> 26
    if operation == _SCALAR_MOVE and function != _OPIVI and function != _OPIVV:
        return 1
    if operation == _WHOLE_MOVE and function == _OPIVI:
        return (word >> 15 & 7) + 1
    wide = operation >= _FIRST_WIDENING or (operation in _NARROWING and function in (_OPIVV, _OPIVI, 4))
    if operation in (0b110000, 0b110001) and function == _OPIVV:
        # Sums of all lanes, in one register.
        wide = False
    if operation == _CONVERSION and function == _OPFVV:
        wide = word >> 15 & 0b11000 in (0b01000, 0b10000)
    return max(1, int(multiplier * (2 if wide else 1)))


def _moved(word: int, multiplier: float) -> int:
    """Registers of a load or a store."""
    fields, unit = (word >> 29) + 1, word >> 26 & 3 == 0
    if unit and word >> 20 & 31 == _MASKS_ARE_MOVED:
        return 1
    if unit and word >> 20 & 31 == _WHOLE:
        return fields
    return max(1, int(multiplier)) * fields
