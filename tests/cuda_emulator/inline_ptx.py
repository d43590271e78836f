"""`asm` statements of CUDA source as C++ that calls the instructions of `instructions.h`.

The text of each statement is read as PTX: operands, registers that it declares, predicates and opcodes. What
is not known is an error, so that nothing is silently left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STATEMENT = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PRODUCT = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?P<depth>\d+)\.row\.col(?:\.satfinite)?"
    r"\.(?P<sum>\w+)\.(?P<left>\w+)\.(?P<right>\w+)\.(?P=sum)$"
)
_LOAD = re.compile(
    r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<transposed>\.trans)?\.shared(?:::cta)?\.b16$"
)
_COPY = re.compile(r"cp\.async\.(?P<cache>ca|cg)\.shared(?:::cta)?\.global(?:\.L2::\d+B)?$")
_STORE = re.compile(r"st\.shared(?:::cta)?(?:\.v(?P<count>[24]))?\.(?:[busf](?P<bits>16|32))$")
_COMPARISON = re.compile(r"setp\.(?P<relation>eq|ne|lt|le|gt|ge)\.[busf]32$")
_DOT = re.compile(r"dp4a\.(?P<left>[us])32\.(?P<right>[us])32$")
# Functions of two or three registers of 32 bits.
_OF_WORDS = {
    "fma.rn.f16x2": "multiply_pairs",
    "prmt.b32": "permuted_bytes",
    "add.rn.f16x2": "add_pairs",
    "sub.rn.f16x2": "subtract_pairs",
    "mul.rn.f16x2": "product_of_pairs",
    "max.f16x2": "greatest_of_pairs",
    "min.f16x2": "least_of_pairs",
    "max.NaN.f16x2": "greatest_or_nan",
    "min.NaN.f16x2": "least_or_nan",
}
# Of two numbers in single precision.
_OF_NUMBERS = {"max.NaN.f32": "greatest_number_or_nan", "min.NaN.f32": "least_number_or_nan"}
_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Sizes of operands in registers of 32 bits: of 16 x depth, depth x 8 and 16 x 8 elements over 32 lanes.
_BITS = {"f32": 32, "s32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8}


def translated(source: str) -> str:
    """The source with every `asm` statement replaced.

    Raises:
        AssertionError: a statement has an instruction that is not emulated.
    """
    parts, position = [], 0
    while found := _STATEMENT.search(source, position):
        end = closing(source, found.end() - 1)
        parts += [source[position : found.start()], _statement(source[found.end() : end])]
        position = end + 1
    return "".join([*parts, source[position:]])


def closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` is closed."""
    depth, position = 0, start
    while True:
        if text[position] == '"':
            literal = _LITERAL.match(text, position)
            assert literal is not None, "a string that does not end"
            position = literal.end()
            continue
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth == 0:
            return position
        position += 1


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators outside of strings and brackets."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        if text[position] == '"':
            literal = _LITERAL.match(text, position)
            assert literal is not None, "a string that does not end"
            position = literal.end()
            continue
        depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth == 0 and text[position] == separator:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [*parts, text[start:]]


def _statement(inside: str) -> str:
    """One statement: its text, operands that are written, and operands that are read."""
    # `::` stands for no operands, but is part of expressions too: only what follows the text is looked at.
    template, *rest = _split(inside, ":")
    text = "".join(bytes(part, "ascii").decode("unicode_escape") for part in _LITERAL.findall(template))
    operands = [operand for part in rest[:2] for operand in _split(part, ",") if operand.strip()]
    expressions = [operand[operand.index("(") + 1 : operand.rindex(")")].strip() for operand in operands]
    return _Translation(expressions).of(text)


@dataclass
class _Translation:
    """Of one statement.

    Attributes:
        expressions: C++ of the operands %0, %1 and so on.
        declared: registers that the text declares.
        numbers: for names of variables.
    """

    expressions: list[str]
    declared: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def of(self, text: str) -> str:
        """C++ of the text."""
        plain = re.sub(r"//[^\n]*", "", text).strip()
        if plain.startswith("{") and plain.endswith("}"):
            plain = plain[1:-1]
        lines = [self._instruction(part.strip()) for part in _split(plain, ";") if part.strip()]
        return "{ " + " ".join(lines) + " }"

    def _instruction(self, text: str) -> str:
        if text.startswith(".reg"):
            return self._declaration(text)
        guard = ""
        if text.startswith("@"):
            predicate, text = text.split(maxsplit=1)
            guard = f"if ({predicate[1:]}) "
        opcode, _, arguments = text.partition(" ")
        given = [argument.strip() for argument in _split(arguments, ",") if argument.strip()]
        return guard + self._operation(opcode, given)

    def _declaration(self, text: str) -> str:
        _, kind, *names = text.replace(",", " ").split()
        types = {".pred": "bool", ".b32": "uint32_t", ".u32": "uint32_t", ".s32": "int32_t"}
        types |= {".b64": "uint64_t", ".u64": "uint64_t", ".f32": "float"}
        assert kind in types, f"a register of type {kind}"
        self.declared |= set(names)
        return f"{types[kind]} {', '.join(names)};"

    def _operation(self, opcode: str, given: list[str]) -> str:
        if found := _PRODUCT.match(opcode):
            return self._product(found, given)
        if found := _LOAD.match(opcode):
            return self._load(found, given)
        if found := _COPY.match(opcode):
            return self._copy(found, given)
        if opcode == "cp.async.commit_group":
            return "commit_copies();"
        if opcode == "cp.async.wait_group":
            return f"wait_for_copies({self._value(given[0])});"
        if opcode == "cp.async.wait_all":
            return "wait_for_all_copies();"
        if found := _STORE.match(opcode):
            return self._store(found, given)
        if found := _DOT.match(opcode):
            signs = ", ".join(str(int(found[side] == "s")) for side in ("left", "right"))
            left, right, before = (f"bits({self._value(name)})" for name in given[1:])
            return f"put({self._value(given[0])}, dot_of_bytes({signs}, {left}, {right}, {before}));"
        if opcode in _OF_WORDS:
            operands = ", ".join(f"bits({self._value(name)})" for name in given[1:])
            return f"put({self._value(given[0])}, {_OF_WORDS[opcode]}({operands}));"
        if opcode in _OF_NUMBERS:
            operands = ", ".join(self._value(name) for name in given[1:])
            return f"{self._value(given[0])} = {_OF_NUMBERS[opcode]}({operands});"
        if found := _COMPARISON.match(opcode):
            left, right = (f"(int32_t)bits({self._value(name)})" for name in given[1:])
            return f"{given[0]} = {left} {_RELATIONS[found['relation']]} {right};"
        return self._conversion(opcode, given)

    def _conversion(self, opcode: str, given: list[str]) -> str:
        value = self._value(given[1]) if len(given) == 2 else ""
        if opcode == "cvta.to.shared.u64":
            return f"{self._value(given[0])} = shared_address((const void*)({value}));"
        if opcode == "ex2.approx.ftz.f32":
            return f"{self._value(given[0])} = power_of_two({value});"
        if opcode in ("cvt.u32.u64", "mov.u32", "mov.b32", "mov.s32"):
            return f"{self._value(given[0])} = {value};"
        raise AssertionError(f"PTX that is not emulated: {opcode}")

    def _product(self, found: re.Match[str], given: list[str]) -> str:
        depth = int(found["depth"])
        types = [found[name] for name in ("sum", "left", "right")]
        assert set(types) <= set(_BITS), f"PTX that is not emulated: {found[0]}"
        sums, lefts, rights, before = (self._registers(group) for group in given)
        counts = [
            elements * _BITS[kind] // 32 // 32
            for elements, kind in zip((16 * 8, 16 * depth, depth * 8), types, strict=True)
        ]
        assert [len(sums), len(lefts), len(rights), len(before)] == [*counts, counts[0]], found[0]
        name = f"product{next(self.numbers)}"
        enums = ", ".join(kind.upper() for kind in types)
        lines = [f"Product {name} = {{16, 8, {depth}, {enums}}};"]
        for letter, registers in (("a", lefts), ("b", rights), ("c", before)):
            lines += [f"{name}.{letter}[{n}] = bits({text});" for n, text in enumerate(registers)]
        lines.append(f"at_warp(MATRIX_PRODUCT, &{name});")
        lines += [f"put({text}, {name}.d[{n}]);" for n, text in enumerate(sums)]
        return "{ " + " ".join(lines) + " }"

    def _load(self, found: re.Match[str], given: list[str]) -> str:
        registers = self._registers(given[0])
        assert len(registers) == int(found["count"]), found[0]
        name = f"load{next(self.numbers)}"
        shape = f"{found['count']}, {int(bool(found['transposed']))}, {self._address(given[1])}"
        lines = [f"MatrixLoad {name} = {{{shape}}};", f"at_warp(MATRIX_LOAD, &{name});"]
        lines += [f"put({text}, {name}.to[{n}]);" for n, text in enumerate(registers)]
        return "{ " + " ".join(lines) + " }"

    def _copy(self, found: re.Match[str], given: list[str]) -> str:
        to, source, size, *rest = given
        number = self._value(size)
        assert found["cache"] == "ca" or not number.isdigit() or number == "16", "cp.async.cg copies 16 bytes"
        present = self._value(rest[0]) if rest else number
        origin = f"bits((const void*)({self._value(source[1:-1].strip())}))"
        return f"copy_later({self._address(to)}, {origin}, {number}, (int)({present}));"

    def _store(self, found: re.Match[str], given: list[str]) -> str:
        kind = "uint16_t" if found["bits"] == "16" else "uint32_t"
        registers = self._registers(given[1])
        assert len(registers) == int(found["count"] or 1), found[0]
        name = f"stored{next(self.numbers)}"
        values = ", ".join(f"({kind})bits({text})" for text in registers)
        return (
            f"{{ const {kind} {name}[] = {{{values}}}; "
            f"memcpy(shared_pointer({self._address(given[0])}), {name}, sizeof({name})); }}"
        )

    def _address(self, text: str) -> str:
        """A shared address in brackets, with a distance in bytes if there is one."""
        assert text.startswith("[") and text.endswith("]"), f"no address: {text}"
        register, _, distance = text[1:-1].partition("+")
        return f"(uint32_t)({self._value(register.strip())}) + ({distance.strip() or 0})"

    def _registers(self, text: str) -> list[str]:
        inside = text[1:-1] if text.startswith("{") else text
        return [self._value(name.strip()) for name in inside.split(",")]

    def _value(self, name: str) -> str:
        if name.startswith("%"):
            return f"({self.expressions[int(name[1:])]})"
        assert name in self.declared or re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", name), f"no register: {name}"
        return name
