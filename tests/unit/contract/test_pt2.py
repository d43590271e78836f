"""Archives of `torch.export`: what runs nothing passes, everything else is refused before torch reads it."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from device_agent.contract.pt2.archive import check_archive, weights_only
from device_agent.errors import AgentError
from device_agent.execute.engines.torch_engine import create
from host.errors import ModelFileError
from host.importers.golden import GoldenOptions
from host.importers.torch.importer import import_pt2

Entries = dict[str, bytes]


class _Command:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 4)
        self.register_buffer("base", torch.eye(4))

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Containers, keywords, an open dimension and a fold of it."""
        made = self.dense(x) if scale is None else self.dense(x) * scale
        return {"out": made.reshape(made.shape[0] * 4), "sum": (self.base @ made.mT).sum()}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A genuine archive with an open dimension, keywords and guards."""
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    batch = torch.export.Dim("batch", min=2, max=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            _Net().eval(),
            (torch.ones(3, 8),),
            {"scale": torch.ones(3, 4)},
            dynamic_shapes={"x": {0: batch}, "scale": {0: batch}},
        )
        torch.export.save(program, path)
    return path


def _entries(path: Path) -> Entries:
    with zipfile.ZipFile(path) as source:
        return {name: source.read(name) for name in source.namelist()}


def _write(path: Path, entries: Entries, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as target:
        for name, data in entries.items():
            target.writestr(name, data)
    return path


def _saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _with_program(change: Callable[[dict[str, Any], str], None]) -> Callable[[Entries, Path], None]:
    """A change of the program; it is told a Python expression that leaves a mark."""

    def apply(entries: Entries, mark: Path) -> None:
        name = next(name for name in entries if name.endswith("models/model.json"))
        program = json.loads(entries[name])
        change(program, f"__import__('os').system('touch {mark}')")
        entries[name] = json.dumps(program).encode()

    return apply


def _pickled(entry: str) -> Callable[[Entries, Path], None]:
    def apply(entries: Entries, mark: Path) -> None:
        entries[f"net/{entry}"] = _saved(((_Command(mark),), {}))

    return apply


def _config(kind: str, place: str, data: Callable[[Path], bytes]) -> Callable[[Entries, Path], None]:
    """A weight or constant that is a pickle."""

    def apply(entries: Entries, mark: Path) -> None:
        name = f"net/data/{kind}/model_{kind}_config.json"
        config = json.loads(entries[name])
        meta = {"path_name": place, "is_param": False, "use_pickle": True, "tensor_meta": None}
        config["config"]["dense.weight"] = meta
        entries[name] = json.dumps(config).encode()
        entries[f"net/data/{kind}/{place}"] = data(mark)

    return apply


def _size(program: dict[str, Any], code: str) -> None:
    program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": code}}


def _hidden_size(program: dict[str, Any], code: str) -> None:
    """The same without a quote or a name that starts with underscores."""
    numbers = "".join(f"chr({ord(letter)})+" for letter in code).rstrip("+")
    _size(program, f"eval({numbers})")


def _guard(program: dict[str, Any], code: str) -> None:
    program["guards_code"] = [f"{code} == 0"]


def _guard_text(program: dict[str, Any], code: str) -> None:
    program["guards_code"] = [f"L['\", {code}) #'] == 0"]


def _target(program: dict[str, Any], code: str) -> None:
    node = program["graph_module"]["graph"]["nodes"][0]
    command = code.split("system(")[1][1:-2]
    node.update(target="torch.os.system", inputs=[{"name": "", "arg": {"as_string": command}, "kind": 1}])


def _operator(program: dict[str, Any], code: str) -> None:
    node = program["graph_module"]["graph"]["nodes"][0]
    node["inputs"] = [{"name": "self", "arg": {"as_operator": "torch.os.system"}, "kind": 1}]


def _file_operator(program: dict[str, Any], code: str) -> None:
    node = program["graph_module"]["graph"]["nodes"][0]
    path = code.split("touch ")[1][:-2]
    inputs = {"filename": {"as_string": path}, "shared": {"as_bool": True}, "size": {"as_int": 4}}
    node["target"] = "torch.ops.aten.from_file.default"
    node["inputs"] = [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs.items()]


def _node_name(program: dict[str, Any], code: str) -> None:
    text = json.dumps(program).replace('"x"', json.dumps(f"x=None, y={code}"))
    program.clear()
    program.update(json.loads(text))


def _parameter_name(program: dict[str, Any], code: str) -> None:
    spec = next(spec for spec in program["graph_module"]["signature"]["input_specs"] if "parameter" in spec)
    spec["parameter"]["parameter_name"] = f'a b"), {code}, getattr(self, "c'


def _enumeration(program: dict[str, Any], code: str) -> None:
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    context = json.dumps({"__enum__": True, "fqn": "antigravity:x", "name": "y"})
    signature["out_spec"] = json.dumps(
        [1, {"type": "builtins.dict", "context": context, "children_spec": []}]
    )


def _keyword(program: dict[str, Any], code: str) -> None:
    program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [f"x={code}", "scale"]


def _remark(program: dict[str, Any], code: str) -> None:
    node = program["graph_module"]["graph"]["nodes"][0]
    node["metadata"]["stack_trace"] = f'File "a", line 1, in f\r{code}'


def _custom(program: dict[str, Any], code: str) -> None:
    program["graph_module"]["graph"]["custom_obj_values"] = {"o": {"name": "o", "class_fqn": "C"}}


def _huge_power(program: dict[str, Any], code: str) -> None:
    _size(program, "9**9**9**9")


def _called_power(program: dict[str, Any], code: str) -> None:
    _size(program, "Pow(Integer(10), Integer(1000000000))")


def _shift(program: dict[str, Any], code: str) -> None:
    _size(program, "Symbol('s0') + (1 << (64 * 64 * 64 * 64 * 64 * 64))")


def _library(entries: Entries, mark: Path) -> None:
    entries["net/data/aotinductor/model/run.so"] = b"\x7fELF"


def _outside(entries: Entries, mark: Path) -> None:
    entries["net/../../outside"] = b""


ATTACKS: dict[str, Callable[[Entries, Path], None]] = {
    "pickled inputs": _pickled("data/sample_inputs/model.pt"),
    "pickled weights of the older kind": _pickled("data/weights/model.pt"),
    "pickled constants of the older kind": _pickled("data/constants/model.pt"),
    "a pickled weight": _config("weights", "weight_0", lambda mark: _saved(_Command(mark))),
    "a pickled constant": _config("constants", "tensor_0", lambda mark: _saved(_Command(mark))),
    "an opaque object": _config("constants", "opaque_obj_0", lambda mark: pickle.dumps(_Command(mark))),
    "an object of a class": _config("constants", "custom_obj_0", lambda mark: _saved(_Command(mark))),
    "code as a size": _with_program(_size),
    "hidden code as a size": _with_program(_hidden_size),
    "code as a guard": _with_program(_guard),
    "code in a guard's text": _with_program(_guard_text),
    "a function as an operator": _with_program(_target),
    "a function as an argument": _with_program(_operator),
    "an operator that writes a file": _with_program(_file_operator),
    "code as the name of a node": _with_program(_node_name),
    "code as the name of a weight": _with_program(_parameter_name),
    "code as a keyword": _with_program(_keyword),
    "a module to import": _with_program(_enumeration),
    "code behind a remark": _with_program(_remark),
    "an object of a class in the graph": _with_program(_custom),
    "a number without end": _with_program(_huge_power),
    "a number without end by a function": _with_program(_called_power),
    "a number without end by shifting": _with_program(_shift),
    "a compiled library": _library,
    "an entry outside": _outside,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_archive_that_is_more_than_data_is_refused_and_runs_nothing(
    name: str, archive: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    entries = _entries(archive)
    ATTACKS[name](entries, mark)
    path = _write(tmp_path / "evil.pt2", entries)
    with pytest.raises(ValueError) as refusal:
        check_archive(str(path))
    assert str(refusal.value).isprintable()
    with pytest.raises(ModelFileError, match=r"evil\.pt2: not an archive .* safe to read: .") as error:
        import_pt2(path, {"x": (3, 8)}, GoldenOptions())
    assert str(error.value).isprintable()
    with pytest.raises(AgentError, match="torch cannot load"):
        create().load(str(path), 1)
    assert not mark.exists() and "antigravity" not in vars(__import__("sys"))["modules"]


def test_genuine_archives_are_read(archive: Path, tmp_path: Path) -> None:
    check_archive(str(archive))
    create().load(str(archive), 1)
    check_archive(str(_write(tmp_path / "net.pt2", _entries(archive))))


def test_a_pickle_is_never_read_with_other_than_tensors(tmp_path: Path) -> None:
    data = _saved(_Command(tmp_path / "ran"))
    with weights_only(), pytest.raises(pickle.UnpicklingError):
        torch.load(io.BytesIO(data), weights_only=False)
    assert not (tmp_path / "ran").exists() and "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_an_archive_that_two_readers_understand_differently_is_refused(archive: Path, tmp_path: Path) -> None:
    data, entries = archive.read_bytes(), _entries(archive)
    at = data.index(b"net/archive_version")
    local = data.index(b"PK\x03\x04", 4)
    changed = {
        "compressed": _write(tmp_path / "a", entries, zipfile.ZIP_DEFLATED).read_bytes(),
        "comment": data[:-2] + struct.pack("<H", 3) + b"abc",
        "before": b"PK\x03\x04" + data,
        "behind": data + b"\0",
        "cut": data[:-30],
        "other name": data[:at] + b"net/archive_versioX" + data[at + 19 :],
        "damaged": data[:local] + b"XX" + data[local + 2 :],
        "upper case": _write(tmp_path / "b", entries | {"net/ARCHIVE_version": b"1"}).read_bytes(),
        "two folders": _write(tmp_path / "c", entries | {"other/models/model.json": b"1"}).read_bytes(),
        "no program": _write(tmp_path / "d", {"net/byteorder": b"little"}).read_bytes(),
        "empty": b"",
    }
    for name, bytes_ in changed.items():
        path = tmp_path / "evil.pt2"
        path.write_bytes(bytes_)
        with pytest.raises(ValueError):
            pytest.fail(f"{name} is accepted: {check_archive(str(path))}")
