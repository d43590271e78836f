"""tasks.json of a bundle of unknown origin: a malformed function is the bundle's fault and nobody's end."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import te, tirx

from host.bundle import TASKS
from host.compile.static_model import Plan
from host.compile.stored_tasks import file as stored_tasks
from host.compile.stored_tasks.file import read_task, tasks_json
from host.errors import BundleError
from host.lowering.tasks import flops, workload_hash
from host.model import DeviceProfile, Task
from targets import board_for, declared
from tests.deployments.workers import answer_here

BOARD = "raspberry_pi_4"
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def written() -> tuple[str, str]:
    """The text of a good file, and the hash of its task."""
    left, right = te.placeholder((16, 16), name="a"), te.placeholder((16, 16), name="b")
    function = te.create_prim_func([left, right, te.compute((16, 16), lambda i, j: left[i, j] + right[i, j])])
    name = workload_hash(function)
    board = board_for(declared()[BOARD])
    assert board is not None
    profile = DeviceProfile("pi", board, board.hardware, 1)
    task = Task("add", function, 1, name, flops(function), model_weights_bytes=3 << 20)
    return tasks_json([task], Plan({}, {}, {}), profile, 0), name


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, which the tests of functions that crash their reader have."""
    answer_here(monkeypatch, stored_tasks)


def _changed(written: tuple[str, str], folder: Path, change: Change) -> str:
    content = json.loads(written[0])
    entry = content["tasks"][written[1]]
    graph = json.loads(zlib.decompress(base64.b64decode(entry["function"])))
    change(graph)
    entry["function"] = base64.b64encode(zlib.compress(json.dumps(graph).encode())).decode()
    (folder / TASKS).write_text(json.dumps(content))
    return written[1]


def test_a_good_file_is_read(written: tuple[str, str], tmp_path: Path) -> None:
    stored = read_task(tmp_path, _changed(written, tmp_path, lambda graph: None))
    assert isinstance(stored.task.function, tirx.PrimFunc) and stored.profile.board.name == BOARD
    assert stored.task.model_weights_bytes == 3 << 20


@pytest.mark.usefixtures("read_here")
def test_every_task_has_the_version_of_its_own_rule(written: tuple[str, str], tmp_path: Path) -> None:
    content = json.loads(written[0])
    entry = content["tasks"][written[1]]
    assert entry["space_version"] == 0, "a default schedule is of no rule"
    entry["space_version"] = 7
    (tmp_path / TASKS).write_text(json.dumps(content))
    assert read_task(tmp_path, written[1]).space_version == 7
    entry["space_version"] = "7"
    (tmp_path / TASKS).write_text(json.dumps(content))
    with pytest.raises(BundleError, match="a version of a rule that is no number"):
        read_task(tmp_path, written[1])


@pytest.mark.usefixtures("read_here")
def test_the_weights_of_its_model_are_a_part_of_a_task(written: tuple[str, str], tmp_path: Path) -> None:
    content = json.loads(written[0])
    entry = content["tasks"][written[1]]
    for given, found in ((5 << 20, 5 << 20), (None, 0)):
        entry.pop("model_weights_bytes", None)
        entry |= {} if given is None else {"model_weights_bytes": given}
        (tmp_path / TASKS).write_text(json.dumps(content))
        assert read_task(tmp_path, written[1]).task.model_weights_bytes == found
    entry["model_weights_bytes"] = 1.5
    (tmp_path / TASKS).write_text(json.dumps(content))
    with pytest.raises(BundleError, match="bytes of weights that is no number"):
        read_task(tmp_path, written[1])


@pytest.mark.usefixtures("read_here")
def test_a_file_with_one_version_for_all_tasks_is_read(written: tuple[str, str], tmp_path: Path) -> None:
    content = json.loads(written[0]) | {"schema": "edgetlm.tasks/1", "space_version": 4}
    del content["tasks"][written[1]]["space_version"]
    (tmp_path / TASKS).write_text(json.dumps(content))
    assert read_task(tmp_path, written[1]).space_version == 4


def _no_body(graph: dict[str, Any]) -> None:
    """A function whose body is nothing, which TVM's printer and hash read through."""
    for node in graph["nodes"]:
        data = node.get("data")
        if isinstance(data, dict) and "body" in data:
            data["body"] = next(i for i, other in enumerate(graph["nodes"]) if other.get("type") == "None")


def _of_itself(graph: dict[str, Any]) -> None:
    """Every part of every node is the root."""
    for node in graph["nodes"]:
        data = node.get("data")
        for name in data if isinstance(data, dict) else ():
            data[name] = graph["root_index"]


def _outside(graph: dict[str, Any]) -> None:
    graph["root_index"] = 10**9


def _other(graph: dict[str, Any]) -> None:
    graph["root_index"] = 0


@pytest.mark.parametrize("change", [_no_body, _of_itself, _outside, _other])
def test_a_malformed_function_is_refused_and_crashes_nothing(
    change: Change, written: tuple[str, str], tmp_path: Path
) -> None:
    name = _changed(written, tmp_path, change)
    with pytest.raises(BundleError, match=r"tasks\.json is damaged \(.+\): make the bundle again") as error:
        read_task(tmp_path, name)
    assert str(error.value).isprintable()


@pytest.mark.usefixtures("read_here")
def test_a_function_of_another_name_is_refused(written: tuple[str, str], tmp_path: Path) -> None:
    content = json.loads(written[0])
    content["tasks"] = {"0" * 16: content["tasks"].pop(written[1])}
    (tmp_path / TASKS).write_text(json.dumps(content))
    with pytest.raises(BundleError, match="another than its name says"):
        read_task(tmp_path, "0" * 16)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": 1}',
        '{"schema": "\\u001b[31m"}',
        "[" * 5000,
        '{"schema": "edgetlm.tasks/2", "tasks": 1}',
    ],
)
def test_a_text_that_is_no_such_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / TASKS).write_text(text)
    with pytest.raises(BundleError) as error:
        read_task(tmp_path, "x")
    assert str(error.value).isprintable()


def test_a_function_that_unpacks_to_gigabytes_is_refused(written: tuple[str, str], tmp_path: Path) -> None:
    content = json.loads(written[0])
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(b" " * (1 << 24)) for _ in range(8)) + packer.flush()
    content["tasks"][written[1]]["function"] = base64.b64encode(data).decode()
    (tmp_path / TASKS).write_text(json.dumps(content))
    with pytest.raises(BundleError, match="over 67108864 bytes"):
        read_task(tmp_path, written[1])
