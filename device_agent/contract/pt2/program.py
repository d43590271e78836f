"""The program of a `torch.export` archive, checked text by text: what is not of a known form is refused.

Every text in the program belongs to a field, and each field takes one form: a name, an operator of a list,
an expression of a small grammar, a tree of containers, or a remark. A field that is not known here takes no
text.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Callable, Dict, FrozenSet, List, Set

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,511}")
# Of parameters and modules; no quote, bracket or backslash, because torch puts them into Python source.
_PATH = re.compile(r"[A-Za-z0-9_.:/@+ -]{0,1024}")
_FLOAT_TEXT = re.compile(r"-?Infinity|NaN|-?inf|nan")

_OPERATORS = re.compile(
    r"torch\.ops\.(?P<library>aten|quantized_decomposed|prims)\.(?P<name>[A-Za-z0-9_]{1,200})"
    r"\.[A-Za-z][A-Za-z0-9_]{0,100}"
    r"|torch\.ops\.higher_order\.(cond|map_impl|scan|while_loop|associative_scan"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift|getitem)"
    r"|math\.(trunc|ceil|floor|sqrt)|torch\._?sym_(not|int|float|ite|max|min|sqrt|sum)"
)
_UNDERSCORED = frozenset(
    "__%s%s__" % (i, name) for i in ("", "i") for name in ("and", "or", "xor", "lshift", "rshift")
)
# Operators that reach for files, wait for ever, print, or hand out memory unchecked.
_REFUSED = frozenset(
    (
        "from_file",
        "save",
        "load",
        "wait",
        "warn",
        "_print",
        "set_",
        "set",
        "set_source_Storage_storage_offset",
    )
)


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


_FUNCTIONS = _words(
    """Add Mul Pow Mod Max Min Abs Eq Ne Lt Le Gt Ge And Or Not Equality Unequality StrictLessThan LessThan
    StrictGreaterThan GreaterThan Integer Rational Float Symbol Piecewise ExprCondPair Tuple floor ceiling Abs
    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural
    FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt
    RoundDecimal ToFloat Identity max min abs"""
)
_CONSTANTS = _words("oo int_oo inf zoo true false True False L args")
_SYMBOL = re.compile(r"[a-z_]{1,8}[0-9]{1,9}")
_ASSUMPTIONS = _words("positive integer nonnegative real finite nonzero negative prime even odd precision")
_CHARACTERS = re.compile(r"[A-Za-z0-9_ '+\-*/%()<>=!&|~,.\[\]]*")
_PARTS = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant,
    ast.Subscript, ast.Attribute, ast.keyword, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_SIZES = frozenset(("size", "stride", "storage_offset", "shape", "dim", "ndim", "item"))
_LONGEST, _DEEPEST, _POWERS, _EXPONENT = 4096, 40, 4, 64
_RAISING = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift"))
_WRITTEN_OUT = frozenset(("Integer", "Rational", "Float", "Symbol"))

_CONTAINERS = frozenset(
    (
        "builtins.tuple",
        "builtins.list",
        "builtins.dict",
        "collections.OrderedDict",
        "torch.fx.immutable_collections.immutable_list",
        "torch.fx.immutable_collections.immutable_dict",
    )
)
_PICKLED = "use_pickle"


def check_program(program: object) -> FrozenSet[str]:
    """Refuses a program with a text of an unknown form.

    Returns:
        The libraries of operators that it uses, "aten" among them.

    Raises:
        ValueError: which one; the message is one line that can be shown.
    """
    if not isinstance(program, dict) or "graph_module" not in program:
        raise ValueError("there is no graph in its program")
    walk = _Walk()
    walk.check(program, "program")
    return frozenset(walk.libraries)


def check_payloads(config: object, folder: str) -> List[str]:
    """Refuses weights that are no tensors of the archive.

    Args:
        config: the list of weights or constants.
        folder: where they lie.

    Returns:
        Names of the entries that are pickles.

    Raises:
        ValueError: why; the message is one line that can be shown.
    """
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise ValueError("its list of weights is damaged")
    walk, pickles = _Walk(), []
    for name, entry in entries.items():
        walk.path(name, "name of a weight")
        if not isinstance(entry, dict):
            raise ValueError("its list of weights is damaged")
        place = entry.get("path_name")
        if not isinstance(place, str) or not re.fullmatch(r"(weight|tensor)_[0-9]{1,9}", place):
            raise ValueError(
                "weight %s is a %s, which is no tensor" % (printable(name, 100), printable(place, 60))
            )
        if entry.get(_PICKLED):
            pickles.append("%s/%s" % (folder, place))
        walk.check({key: value for key, value in entry.items() if key != "path_name"}, "weight")
    return pickles


class _Walk:
    """Goes through a program once, and counts its nodes.

    Attributes:
        libraries: of the operators that were found.
    """

    def __init__(self) -> None:
        self.libraries: Set[str] = set()
        self._nodes = 0
        self._forms: Dict[str, Callable[[str, str], None]] = {}
        for keys, form in (
            ("name as_name verifiers forward_arg_names field_names type", self.name),
            ("parameter_name buffer_name tensor_constant_name user_input_name fqn", self.path),
            ("target as_operator", self.operator),
            ("expr_str", self.expression),
            ("guards_code", self.guard),
            ("in_spec out_spec", self.containers),
            ("as_float as_floats as_float_lists real imag", self.number),
            ("as_string as_strings torch_version", self.remark),
        ):
            self._forms.update(dict.fromkeys(keys.split(), form))

    def check(self, value: object, key: str) -> None:
        """Refuses a value with a text that does not fit its field."""
        if isinstance(value, dict):
            if value and key in ("custom_obj", "as_custom_obj", "custom_obj_values"):
                raise ValueError("it holds an object that is no tensor")
            if key == "metadata":
                self._metadata(value)
                return
            self._nodes += key == "nodes"
            for name, part in value.items():
                self.path(name, "a field")
                self.check(part, name if name in self._forms or isinstance(part, (dict, list)) else "")
                if isinstance(part, str) and name not in self._forms:
                    raise ValueError("its field %s holds a text" % printable(name, 60))
            if self._nodes > LIMITS.model.nodes:
                raise ValueError("it has over %d nodes" % LIMITS.model.nodes)
        elif isinstance(value, list):
            for part in value:
                self.check(part, key)
        elif isinstance(value, str):
            if key not in self._forms:
                raise ValueError("its field %s holds a text" % printable(key, 60))
            self._forms[key](value, key)

    def name(self, text: str, key: str) -> None:
        """A Python name; the arguments of some operators have none."""
        if text and not _NAME.fullmatch(text):
            raise ValueError("%r is no name (%s)" % (printable(text, 60), key))

    def path(self, text: str, key: str) -> None:
        """The path of a parameter or module."""
        if not _PATH.fullmatch(text):
            raise ValueError("%r is no path of a parameter or module (%s)" % (printable(text, 60), key))

    def number(self, text: str, key: str) -> None:
        """A number that JSON has no form for."""
        if not _FLOAT_TEXT.fullmatch(text):
            raise ValueError("%r is no number" % printable(text, 60))

    def remark(self, text: str, key: str) -> None:
        """Text that torch shows and never runs."""
        if len(text) > _LONGEST or not text.isprintable():
            raise ValueError("the text %r is refused" % printable(text, 60))

    def operator(self, text: str, key: str) -> None:
        """An operator of torch itself."""
        found = _OPERATORS.fullmatch(text)
        name = (found.group("name") or "") if found else ""
        hidden = name.startswith("__") and name not in _UNDERSCORED
        if found is None or hidden or name in _REFUSED:
            raise ValueError("%s is no operator that a model may use" % printable(text, 100))
        if found.group("library"):
            self.libraries.add(found.group("library"))

    def expression(self, text: str, key: str) -> None:
        """The Python expression of a size, which torch evaluates."""
        _check_python(text, False)

    def guard(self, text: str, key: str) -> None:
        """The Python expression of a condition on the inputs, which torch evaluates."""
        _check_python(text, True)

    def containers(self, text: str, key: str) -> None:
        """How inputs and outputs are nested."""
        tree = strict_json.parse(text.encode(), LIMITS.model.program_bytes, "its tree of %s" % key)
        if not isinstance(tree, list) or len(tree) != 2:
            raise ValueError("its tree of %s is damaged" % key)
        waiting: List[Any] = [tree[1]]
        while waiting:
            spec = waiting.pop()
            if not isinstance(spec, dict) or set(spec) != {"type", "context", "children_spec"}:
                raise ValueError("its tree of %s is damaged" % key)
            if spec["type"] is not None and spec["type"] not in _CONTAINERS:
                raise ValueError("its %s uses the container %s" % (key, printable(spec["type"], 60)))
            if not isinstance(spec["children_spec"], list):
                raise ValueError("its tree of %s is damaged" % key)
            self._context(spec["context"], key)
            waiting.extend(spec["children_spec"])

    def _context(self, context: object, key: str) -> None:
        """The keys of a container: names and numbers."""
        if context is None:
            return
        if not isinstance(context, str):
            raise ValueError("its tree of %s is damaged" % key)
        keys = strict_json.parse(context.encode(), LIMITS.model.program_bytes, "a container of %s" % key)
        for one in keys if isinstance(keys, list) else [keys]:
            if isinstance(one, str):
                self.path(one, key)
            elif one is not None and not isinstance(one, (int, float)):
                raise ValueError("a container of %s has the key %s" % (key, printable(one, 60)))

    def _metadata(self, value: Dict[str, Any]) -> None:
        """Remarks on where a node comes from; line breaks separate lines of a trace."""
        for name, text in value.items():
            self.name(name, "metadata")
            if not isinstance(text, str) or not text.replace("\n", "").replace("\t", "").isprintable():
                raise ValueError("the remark %s of a node is refused" % printable(name, 60))


def _check_python(text: str, guard: bool) -> None:
    """Refuses an expression that does more than arithmetic; torch hands it to `eval` or `exec`."""
    shown = printable(text, 80)
    if len(text) > _LONGEST or not _CHARACTERS.fullmatch(text) or _depth(text) > _DEEPEST:
        raise ValueError("the expression %s is refused" % shown)
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError("the expression %s is damaged" % shown) from error
    powers = 0
    callees = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    quoted = _quoted(tree)
    for node in ast.walk(tree):
        # Python 3.8 wraps what stands between brackets.
        if not isinstance(node, _PARTS) and type(node).__name__ != "Index":
            raise ValueError("the expression %s is refused (%s)" % (shown, type(node).__name__))
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not guard:
            raise ValueError("the expression %s is refused (%s)" % (shown, type(node).__name__))
        if isinstance(node, ast.Attribute) and node.attr not in _SIZES:
            raise ValueError("the expression %s asks for %s" % (shown, node.attr))
        if isinstance(node, ast.Name) and not _known(node.id, id(node) in callees):
            raise ValueError("the expression %s names %s" % (shown, node.id))
        if isinstance(node, ast.Call) and not isinstance(node.func, (ast.Name, ast.Attribute)):
            raise ValueError("the expression %s is refused (call)" % shown)
        if isinstance(node, ast.keyword) and (
            node.arg not in _ASSUMPTIONS or not isinstance(node.value, ast.Constant)
        ):
            raise ValueError("the expression %s is refused (keyword)" % shown)
        if isinstance(node, ast.Constant):
            _check_constant(node.value, id(node) in quoted, shown)
        powers += isinstance(node, ast.Pow) or (isinstance(node, ast.Name) and "Pow" in node.id)
        if any(not _is_small(exponent) for exponent in _exponents(node)):
            raise ValueError("the expression %s has a large power" % shown)
    if powers > _POWERS:
        raise ValueError("the expression %s has too many powers" % shown)


def _exponents(node: ast.AST) -> List[ast.AST]:
    """The exponents and the bits shifted by, of which a few digits make a number that fills the memory."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return [node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _RAISING:
        return list(node.args[1:])
    return []


def _is_small(exponent: ast.AST) -> bool:
    """Whether an exponent is a symbol, or a number that is written out and is not large."""
    for node in ast.walk(exponent):
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare)):
            return False
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _WRITTEN_OUT:
            return False
        value = node.value if isinstance(node, ast.Constant) else 0
        if isinstance(value, (int, float)) and not abs(value) <= _EXPONENT:
            return False
    return True


def _known(name: str, called: bool) -> bool:
    return name in _FUNCTIONS if called else name in _CONSTANTS or bool(_SYMBOL.fullmatch(name))


def _quoted(tree: ast.AST) -> Dict[int, bool]:
    """Where text may stand: as the name of a symbol, as a number of fixed precision, and between brackets."""
    places: Dict[int, bool] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("Symbol", "Float")
        ):
            places.update({id(argument): True for argument in node.args[:1]})
        if isinstance(node, ast.Subscript):
            index = (
                getattr(node.slice, "value", node.slice)
                if not isinstance(node.slice, ast.Constant)
                else node.slice
            )
            places[id(index)] = True
    return places


def _check_constant(value: object, may_be_text: bool, shown: str) -> None:
    if isinstance(value, str):
        if not may_be_text or not re.fullmatch(r"[A-Za-z0-9_.+-]{1,200}", value):
            raise ValueError("the expression %s holds a text" % shown)
    elif not isinstance(value, (bool, int, float)) or abs(value) > 1 << 64:
        raise ValueError("the expression %s holds a constant that is no number" % shown)


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    return deepest + text.count("~") + text.count("not ")
