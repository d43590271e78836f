"""The header of a GGUF file, which may be anyone's."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from host.errors import EdgeError, ModelFileError
from host.importers.decoders.architectures import describe
from host.importers.decoders.gguf.header import read_header
from host.importers.decoders.gguf.model import read_gguf
from tests.gguf_file import Stored, stored, text, write_gguf

VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<s>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.bos_token_id": 3,
    "tokenizer.ggml.eos_token_id": 3,
}
SHAPES = {
    "token_embd.weight": (4, 64),
    "output_norm.weight": (64,),
    "blk.0.attn_norm.weight": (64,),
    "blk.0.attn_q.weight": (64, 64),
    "blk.0.attn_k.weight": (64, 64),
    "blk.0.attn_v.weight": (64, 64),
    "blk.0.attn_output.weight": (64, 64),
    "blk.0.ffn_norm.weight": (64,),
    "blk.0.ffn_gate.weight": (32, 64),
    "blk.0.ffn_up.weight": (32, 64),
    "blk.0.ffn_down.weight": (64, 32),
    "rope_freqs.weight": (8,),
}


def whole_file(path: Path) -> bytes:
    tensors = {
        name: stored(np.ones(shape), "Q4_0" if len(shape) == 2 else "F32") for name, shape in SHAPES.items()
    }
    return write_gguf(path, VALUES, tensors).read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole_file(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def read(data: bytes) -> None:
    """All that is read of a file before it is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        path.write_bytes(data)
        found = read_gguf(path)
        describe(found.config, found.weights)
        for name, tensor in found.weights.items():
            if len(tensor.shape) <= 2 and tensor.end - tensor.begin <= len(data):
                assert tensor.read(name).shape == tensor.shape


def test_metadata_and_tensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    header = read_header(path)
    expected = dict(VALUES)
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    assert header.values[epsilon] == pytest.approx(expected.pop(epsilon))
    assert {name: header.values[name] for name in expected} == expected
    assert {name: place.shape for name, place in header.tensors.items()} == SHAPES
    assert header.tensors["blk.0.ffn_down.weight"].dtype == "Q4_0"
    read(content)


def test_the_data_begin_at_the_files_own_alignment(tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.float32)
    path = write_gguf(tmp_path / "a.gguf", {"general.alignment": 256}, {"a": stored(values)}, 256)
    place = read_header(path).tensors["a"]
    assert place.begin % 256 == 0
    np.testing.assert_array_equal(np.frombuffer(path.read_bytes()[place.begin : place.end], "<f4"), values)


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 2500), st.binary(min_size=1, max_size=8), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    end=st.none() | st.integers(0, 3000),
)
@example([(8, b"\xff" * 8, False)], None)
@example([(16, b"\xff" * 8, False)], None)
def test_any_change_is_read_or_one_line(
    content: bytes, changes: list[tuple[int, bytes, bool]], end: int | None
) -> None:
    data = bytearray(content)
    for place, change, inserted in changes:
        data[place : place if inserted else place + len(change)] = change
    try:
        read(bytes(data[:end]))
    except EdgeError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000 and str(error).isprintable()


def header(tensors: int = 0, values: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values) + rest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(version=1), "GGUF version 1; versions 2 and 3"),
        (header(version=3 << 24), "little-endian, are read"),
        (header(tensors=1 << 60), "tensors: download it again"),
        (header(values=1 << 60), "metadata: download it again"),
        (header(values=1, rest=struct.pack("<Q", 1 << 62)), "a text is longer than any"),
        (header(values=1, rest=text("")), "a name is empty"),
        (header(values=1, rest=text("a") + struct.pack("<I", 77)), "a value has type 77"),
        (header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 9, 1)), "a value has type 9"),
        (header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 0, 1 << 50)), "entries"),
        (header(values=1, rest=text("a") + struct.pack("<IIQ", 9, 0, 1 << 20)), "longer than the file"),
        (header(values=2, rest=2 * (text("a") + struct.pack("<IB", 7, 1))), "'a' is there twice"),
        (header(tensors=1, rest=text("a") + struct.pack("<I", 9)), "9 dimensions"),
        (header(tensors=1, rest=text("a") + struct.pack("<IQIQ", 1, 0, 0, 0)), "size out of range"),
        (header(tensors=1, rest=text("a") + struct.pack("<IQIQ", 1, 8, 0, 0)), "outside of the file"),
        (header(tensors=1, rest=text("a") + struct.pack("<IQIQ", 1, 1, 0, 2**64 - 4)), "outside of the file"),
        (header(tensors=1, rest=text("a") + struct.pack("<IQIQ", 1, 31, 8, 0)), "no whole blocks"),
        (header(values=1, rest=text("general.alignment") + struct.pack("<II", 4, 24)), "no power of two"),
    ],
)
def test_what_is_damaged_is_told(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        read_header(path)


def test_a_header_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("host.importers.decoders.gguf.header._HEADER_BYTES", 200)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="longer than the file, or than any"):
        read_header(path)


def test_a_file_that_becomes_shorter_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    tensors = read_gguf(path).weights
    path.write_bytes(content[:-4000])
    for name in ("model.layers.0.mlp.down_proj.weight", "model.layers.0.post_attention_layernorm.weight"):
        with pytest.raises(ModelFileError, match="the file became shorter"):
            tensors[name].read(name)


def test_a_type_that_is_not_read_takes_no_bytes(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {}, {"a": Stored("other", (1 << 40,), b"")})
    place = read_header(path).tensors["a"]
    assert (place.dtype, place.begin, place.end) == ("type 999", 0, 0)
