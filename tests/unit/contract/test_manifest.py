"""What a manifest must be like: everything that decides what runs and what memory is read."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.contract import manifest
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import ContractError, as_name, check_manifest, is_name

FIELDS: dict[str, Any] = {
    "schema": "edgetlm.bundle/2",
    "name": "net",
    "backend": "tvm",
    "model": "lib.so",
    "threads": 2,
    "files": {
        "lib.so": {"size": 10, "sha256": "0" * 64},
        "params.bin": {"size": 100, "sha256": "1" * 64},
    },
    "signature": {
        "inputs": [{"name": "x", "shape": [4, 64], "dtype": "float32", "open": [0]}],
        "outputs": [{"name": "y", "shape": [], "dtype": "bool"}],
        "length": {"name": "seq", "low": 1, "high": 4},
    },
    "parameters": [{"offset": 64, "nbytes": 36, "shape": [3, 3], "dtype": "float32"}],
    "target": {"kind": "llvm"},
}

DECODER: dict[str, Any] = {
    **FIELDS,
    "schema": "edgetlm.bundle/3",
    "signature": {
        "inputs": [{"name": name, "shape": [1], "dtype": "int32"} for name in ("tokens", "position")],
        "outputs": [{"name": "logits", "shape": [1, 10], "dtype": "float32"}],
    },
    "state": [{"name": "key_0", "shape": [2, 4, 8, 16], "dtype": "float32"}],
    "decoder": {
        "context": 64,
        "chunk": 16,
        "long_chunk": 32,
        "vocabulary": 10,
        "end_tokens": [2, 9],
        "verified": 4,
        "sequences": 3,
    },
}


def changed(*path: Any, to: Any, of: dict[str, Any] = FIELDS) -> bytes:
    fields = copy.deepcopy(of)
    place: Any = fields
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(fields).encode()


def test_a_whole_manifest_passes() -> None:
    found = check_manifest(json.dumps(FIELDS).encode())
    assert (found.model, found.backend, found.threads) == ("lib.so", "tvm", 2)
    assert found.files["params.bin"].size == 100


LIMIT = LIMITS.bundle
WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("schema",), "edgetlm.bundle/1"),
    (("schema",), None),
    (("name",), "../net"),
    (("name",), "/net"),
    (("name",), "net\n"),
    (("name",), ".net"),
    (("name",), ""),
    (("name",), "n" * 101),
    (("name",), 5),
    (("backend",), "torch"),
    (("backend",), ["tvm"]),
    (("model",), "/lib.so"),
    (("model",), "manifest.json"),
    (("model",), None),
    (("threads",), 0),
    (("threads",), LIMIT.threads + 1),
    (("threads",), True),
    (("threads",), 1.0),
    (("threads",), "1"),
    (("files",), {}),
    (("files",), []),
    (("files", "lib.so"), "0" * 64),
    (("files", "lib.so", "size"), -1),
    (("files", "lib.so", "size"), LIMIT.file_bytes + 1),
    (("files", "lib.so", "size"), 10.0),
    (("files", "lib.so", "sha256"), "0" * 63),
    (("files", "lib.so", "sha256"), "A" * 64),
    (("files", "lib.so", "sha256"), "0" * 64 + "\n"),
    (("files", "../x"), {"size": 0, "sha256": "0" * 64}),
    (("files", "manifest.sig"), {"size": 0, "sha256": "0" * 64}),
    (("files", "manifest.json"), {"size": 0, "sha256": "0" * 64}),
    (("files",), {f"f{i}": {"size": 0, "sha256": "0" * 64} for i in range(LIMIT.files + 1)}),
    (("signature",), None),
    (("signature", "inputs"), None),
    (("signature", "inputs"), [5]),
    (("signature", "inputs", 0, "name"), 5),
    (("signature", "inputs", 0, "shape"), [-1]),
    (("signature", "inputs", 0, "shape"), [True]),
    (("signature", "inputs", 0, "shape"), [1] * (LIMIT.rank + 1)),
    (("signature", "inputs", 0, "shape"), [LIMIT.dimension + 1]),
    (("signature", "inputs", 0, "shape"), [1 << 20, 1 << 20, 1 << 20]),
    (("signature", "inputs", 0, "dtype"), "complex64"),
    (("signature", "inputs", 0, "open"), [2]),
    (("signature", "inputs", 0, "open"), [-1]),
    (("signature", "length", "low"), 0),
    (("signature", "length", "high"), 0),
    (("signature", "length", "name"), None),
    (("parameters",), {}),
    (("parameters", 0, "offset"), -64),
    (("parameters", 0, "offset"), 8),
    (("parameters", 0, "offset"), 128),
    (("parameters", 0, "nbytes"), 35),
    (("parameters", 0, "nbytes"), True),
    (("parameters", 0, "shape"), [4, 3]),
    (("parameters", 0, "shape"), [-3, -3]),
    (("parameters", 0, "dtype"), "float"),
    (("backend",), "onnxruntime"),  # which has no parameters
    (("streamed",), 1),
    (("streamed",), "true"),
    (("streamed",), None),
    (("target",), []),
    (("target", "kind"), 5),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_what_cannot_be_is_refused_in_one_line(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ContractError) as refusal:
        check_manifest(changed(*path, to=value))
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 300


WRONG_DECODER: list[tuple[tuple[Any, ...], Any]] = [
    (("schema",), "edgetlm.bundle/2"),  # which a runtime takes that knows of no state
    (("state",), []),
    (("state",), None),
    (("state",), {"key_0": 1}),
    (("state",), [DECODER["state"][0]] * (LIMIT.tensors + 1)),
    (("state",), [{"name": "x", "shape": [1 << 35], "dtype": "int8"}] * 3),
    (("state", 0), "key_0"),
    (("state", 0, "name"), None),
    (("state", 0, "shape"), [-1]),
    (("state", 0, "shape"), [1 << 40, 1 << 40]),
    (("state", 0, "dtype"), "float"),
    (("backend",), "litert"),
    (("signature", "length"), {"name": "n", "low": 1, "high": 4}),
    (("decoder",), []),
    (("decoder", "context"), 0),
    (("decoder", "context"), -64),
    (("decoder", "context"), LIMIT.context + 1),
    (("decoder", "context"), 64.0),
    (("decoder", "chunk"), 0),
    (("decoder", "chunk"), 65),
    (("decoder", "chunk"), True),
    (("decoder", "long_chunk"), None),
    (("decoder", "long_chunk"), 16),  # no longer than the other one
    (("decoder", "long_chunk"), 65),
    (("decoder", "long_chunk"), True),
    (("decoder", "long_chunk"), 32.0),
    (("decoder", "vocabulary"), 0),
    (("decoder", "vocabulary"), LIMIT.vocabulary + 1),
    (("decoder", "vocabulary"), 11),  # another than the logits
    (("decoder", "verified"), None),
    (("decoder", "verified"), 1),
    (("decoder", "verified"), LIMIT.verified_tokens + 1),
    (("decoder", "verified"), 2.0),
    (("decoder", "sequences"), None),
    (("decoder", "sequences"), 1),
    (("decoder", "sequences"), LIMIT.sequences + 1),
    (("decoder", "sequences"), 2.0),
    # Each of them is allowed, and all states together are not.
    (("state",), [{"name": "x", "shape": [1 << 34], "dtype": "int8"}] * 2),
    (("decoder", "end_tokens"), None),
    (("decoder", "end_tokens"), 2),
    (("decoder", "end_tokens"), [10]),
    (("decoder", "end_tokens"), [-1]),
    (("decoder", "end_tokens"), [2] * (LIMIT.end_tokens + 1)),
    (("signature", "inputs", 0, "shape"), [2]),
    (("signature", "inputs", 1, "dtype"), "int64"),
    (("signature", "inputs"), []),
    (("signature", "outputs", 0, "dtype"), "float16"),
]


def test_a_manifest_with_state_passes() -> None:
    assert check_manifest(json.dumps(DECODER).encode()).fields["decoder"]["chunk"] == 16
    # Bundles of before have chunks of one length.
    short = {name: value for name, value in DECODER["decoder"].items() if name != "long_chunk"}
    assert check_manifest(changed("decoder", to=short, of=DECODER))
    # State alone makes no decoder, and a writer may say so.
    assert check_manifest(changed("decoder", to=None, of=DECODER))
    assert check_manifest(changed("state", to=[]))


@pytest.mark.parametrize(("path", "value"), WRONG_DECODER)
def test_state_and_decoders_that_cannot_be_are_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ContractError) as refusal:
        check_manifest(changed(*path, to=value, of=DECODER))
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 300


@pytest.mark.parametrize("field", ["state", "decoder"])
def test_a_manifest_without_state_has_none_of_it(field: str) -> None:
    with pytest.raises(ContractError):
        check_manifest(changed(field, to=DECODER[field]))


@pytest.mark.parametrize("field", ["name", "backend", "files", "model", "threads", "signature"])
def test_nothing_needed_can_be_left_out(field: str) -> None:
    fields = {name: value for name, value in FIELDS.items() if name != field}
    with pytest.raises(ContractError):
        check_manifest(json.dumps(fields).encode())


def test_what_people_read_is_not_looked_at() -> None:
    assert check_manifest(changed("measured", to={"latency": [1.5, None]}))
    assert check_manifest(changed("target", to={}))


@pytest.mark.parametrize(
    "text", ["model", "my model (1)", "../..", "", "é", ".hidden", "-x", "x" * 300, "\n"]
)
def test_every_text_has_a_name_near_it(text: str) -> None:
    assert is_name(as_name(text))


@given(st.text())
def test_names_are_names(text: str) -> None:
    assert is_name(as_name(text))
    assert as_name(as_name(text)) == as_name(text)


def digest(change: Callable[[dict[str, Any]], Any] = lambda fields: None) -> str:
    fields = copy.deepcopy(FIELDS)
    change(fields)
    return manifest.content_digest(fields)


def test_the_digest_of_the_content_leaves_figures_out() -> None:
    assert digest(lambda f: f.update(measured={"x": 1}, name="other", command="c")) == digest()
    beside = {"golden.npz": {"size": 1, "sha256": "2" * 64}}
    assert digest(lambda f: f["files"].update(beside)) == digest()
    assert digest(lambda f: f.update(threads=3)) != digest()
    assert digest(lambda f: f["files"]["lib.so"].update(sha256="3" * 64)) != digest()
    assert digest(lambda f: f["signature"]["inputs"][0].update(dtype="int32")) != digest()


def test_state_is_of_the_digest_where_there_is_some() -> None:
    assert digest(lambda f: f.update(state=[], decoder=None)) == digest()
    with_state = digest(lambda f: f.update(state=DECODER["state"]))
    assert with_state != digest()
    assert digest(lambda f: f.update(state=DECODER["state"], decoder=DECODER["decoder"])) != with_state
