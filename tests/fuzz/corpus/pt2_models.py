"""Archives of torch.export: small ones, kept as files, and parts that run something where they are trusted.

`python -m tests.fuzz.corpus.pt2_models` writes the files again, without anything of the machine.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.mutate import CANARY, COMMAND

MODEL = "model.pt2"
FOLDER = Path(__file__).parent / "pt2"
PROGRAM = "models/model.json"
PICKLE = "data/sample_inputs/model.pt"

# Operators and functions that a program must not reach.
TARGETS = (
    *("os.system", "builtins.eval", "builtins.exec", "subprocess.run", "torch.ops.aten.from_file.default"),
    *("torch.hub.load", "torch.load", "torch.ops.aten.set_.source_Storage", "torch.ops.load_library"),
    *("torch.ops.aten.linear.default.__globals__", "torch.serialization.load", "_operator.attrgetter"),
    *(
        "torch.ops.higher_order.call_torchbind",
        "torch.ops.aten.sleep.default",
        "torch.ops.prim.device.default",
    ),
    *(
        "math.exp",
        "_operator.call",
        "_operator.methodcaller",
        "torch.sym_max",
        "torch.ops.aten._print.default",
    ),
    *("torch.ops.aten.linear", "torch.ops.aten.relu_.default", "torch.ops.aten.empty.memory_format"),
)
EXPRESSIONS = (
    f"__import__('os').system('{COMMAND}')",
    f"Symbol('s0', positive=True).__class__.__base__.__subclasses__() or open('{CANARY}', 'w')",
    f'eval(\'__import__("os").system("{COMMAND}")\')',
    f"Function('f')(exec('import os; os.system(\"{COMMAND}\")'))",
    "2**2**2**2**99",
    "9**9**9",
    "Symbol('s' * 10**9)",
    "(" * 900 + "s0" + ")" * 900,
    "lambda: 0",
    "[x for x in ().__class__.__bases__[0].__subclasses__()]",
    "Max(" + "s0, " * 500 + "s0)",
    "s0; import os",
    "s0\nimport os",
    "Pow(Integer(10), Integer(1000000000))",
    "Mod(s0, 0)",
    "Integer('9' * 10**8)",
)


class _Runs:
    """A pickle that calls something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def payloads() -> tuple[bytes, ...]:
    """Pickles that make a file where they are trusted."""
    import builtins
    import os
    import subprocess

    made = [
        pickle.dumps(_Runs(os.system, COMMAND), protocol)  # type: ignore[arg-type]
        for protocol in (0, 1, 2, 4, 5)
    ]
    made += [
        pickle.dumps(one, 2)
        for one in (
            _Runs(builtins.exec, f"open({CANARY!r}, 'w')"),
            _Runs(builtins.eval, f"open({CANARY!r}, 'w')"),
            _Runs(subprocess.call, COMMAND.split()),
            _Runs(builtins.open, CANARY, "w"),
        )
    ]
    made += [
        b"ctorch\nload\n(S'" + CANARY.encode() + b"'\ntR.",
        b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNNtR.",
        b"(S'" + COMMAND.encode() + b"'\nios\nsystem\n.",
        b"ctorch.storage\n_load_from_bytes\n(S'x'\ntR.",
        b"ccollections\nOrderedDict\n)R(S'__class__'\nNdb.",
        b"ctorch\nSize\n(I-1\ntR.",
        b"ctorch.FloatStorage\n__reduce_ex__\n)R.",
        b"\x80\x02" + b"(" * 100_000 + b".",
        b"\x80\x02]" + b"]a" * 50_000 + b".",
    ]
    return tuple(made)


@functools.cache
def seeds() -> tuple[Mapping[str, bytes], ...]:
    """Valid archives: entries by name, without the folder that all lie in."""
    found = []
    for path in sorted(FOLDER.glob("*.pt2")):
        with zipfile.ZipFile(path) as archive:
            found.append({name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()})
    return tuple(found)


def zipped(entries: Mapping[str, bytes], folder: str = "m") -> bytes:
    """An archive as torch writes it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}" if folder else name), data)
    return made.getvalue()


def with_pickle(inner: bytes, data: bytes) -> bytes:
    """A saved tensor whose pickle is another one."""
    with zipfile.ZipFile(io.BytesIO(inner)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    return zipped({name: data if name.endswith("data.pkl") else old for name, old in entries.items()}, "")


@functools.cache
def cases() -> tuple[Case, ...]:
    """Everything that was a fault once, and its kin."""
    entries = seeds()[0]
    found: dict[str, bytes] = {}
    for number, payload in enumerate(payloads()):
        found[f"pickle-{number}"] = zipped({**entries, PICKLE: with_pickle(entries[PICKLE], payload)})
        found[f"raw-pickle-{number}"] = zipped({**entries, PICKLE: payload})
    for number, target in enumerate(TARGETS):
        found[f"target-{number}"] = zipped(
            _changed(entries, '"torch.ops.aten.relu.default"', json.dumps(target))
        )
    entries = seeds()[-1]
    program = entries[PROGRAM].decode()
    start = program.index('"expr_str": ') + len('"expr_str": ')
    old = program[start : program.index('"', start + 1) + 1]
    for number, text in enumerate(EXPRESSIONS):
        found[f"expression-{number}"] = zipped(_changed(entries, old, json.dumps(text)))
    found["library"] = zipped({**entries, "data/aotinductor/model/x.so": b"\x7fELF"})
    found["outside"] = zipped({**entries, "../../x": b"x"})
    return tuple(Case(f"pt2-{name}", {MODEL: data}) for name, data in found.items())


def _changed(entries: Mapping[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {**entries, PROGRAM: entries[PROGRAM].decode().replace(old, new).encode()}


def _export() -> None:
    import torch

    class Dense(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 3)
            self.register_buffer("bias", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.inner(x)) + self.bias

    class Pair(torch.nn.Module):
        def forward(self, pair: dict[str, torch.Tensor], *, factor: int) -> Any:
            return {"out": pair["x"] + pair["y"] * factor, "more": (pair["x"] > pair["y"],)}

    image = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.AdaptiveAvgPool2d(1)
    )
    pair = {"x": torch.zeros(2, 3), "y": torch.ones(2, 3)}
    size = torch.export.Dim("n", min=2, max=8)
    made = {
        "a_dense": torch.export.export(Dense(), (torch.zeros(2, 4),)),
        "b_image": torch.export.export(image.eval(), (torch.zeros(1, 2, 6, 6),)),
        "c_pair": torch.export.export(Pair(), (pair,), {"factor": 2}),
        "d_open": torch.export.export(Dense(), (torch.zeros(2, 4),), dynamic_shapes=({0: size},)),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, program in made.items():
        written = io.BytesIO()
        torch.export.save(program, written)
        with zipfile.ZipFile(written) as archive:
            entries = {entry.split("/", 1)[1]: archive.read(entry) for entry in archive.namelist()}
        fields = json.loads(entries[PROGRAM])
        for node in fields["graph_module"]["graph"]["nodes"]:
            node["metadata"].pop("stack_trace", None)
        (FOLDER / f"{name}.pt2").write_bytes(zipped({**entries, PROGRAM: json.dumps(fields).encode()}, "m"))


if __name__ == "__main__":
    _export()
