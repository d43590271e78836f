"""What is written into a bundle, and how much memory and disk that takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.manifest import DecoderPart, Draft, StateTensor, signature_part
from host.model import Signature, TensorSpec
from tests.unit.bundle.samples import GOLDEN, PARAMETERS, draft


def test_the_content_hash_covers_the_model_and_not_the_figures(made: Path, tmp_path: Path) -> None:
    before = bundle.load(made)
    after = bundle.update(made, before, measured={"latency_ms": 3})
    assert bundle.load(made).measured == {"latency_ms": 3}
    assert after.content_hash == before.content_hash
    other = tmp_path / "other.so"
    other.write_bytes(b"another library")
    changed = bundle.write_tvm(tmp_path / "b2", draft(), other, PARAMETERS, GOLDEN)
    assert changed.content_hash != before.content_hash


def test_an_engine_bundle_holds_the_model_file(tmp_path: Path) -> None:
    model = tmp_path / "pinned"
    model.write_bytes(b"onnx bytes")
    manifest = bundle.write_engine(tmp_path / "bundle", draft("onnxruntime"), model, GOLDEN)
    assert bundle.load(tmp_path / "bundle") == manifest
    assert (tmp_path / "bundle" / manifest.model).read_bytes() == b"onnx bytes"
    assert manifest.parameters == ()


def test_parameters_that_are_all_empty_make_a_file_that_can_be_mapped(tmp_path: Path) -> None:
    library = tmp_path / "some.so"
    library.write_bytes(b"x")
    manifest = bundle.write_tvm(
        tmp_path / "b", draft(), library, [np.zeros((0, 4), np.float32), np.zeros((0,), np.int64)], GOLDEN
    )
    assert [one.nbytes for one in manifest.parameters] == [0, 0]
    assert (tmp_path / "b" / "params.bin").stat().st_size == 1
    assert bundle.load(tmp_path / "b") == manifest


def test_writing_does_not_hold_all_parameters_at_once(tmp_path: Path) -> None:
    program = f"""
import resource
import numpy as np
from pathlib import Path
from host import bundle
from tests.unit.bundle.samples import GOLDEN, draft
folder = Path({str(tmp_path)!r})
(folder / "lib").write_bytes(b"x")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
parameters = (np.full(4 << 20, i, np.float32) for i in range(12))
bundle.write_tvm(folder / "bundle", draft(), folder / "lib", parameters, GOLDEN)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # 12 arrays of 16 MiB each: two may be alive while one follows the other.
    assert int(done.stdout) < 64 << 10


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    library = tmp_path / "some.so"
    library.write_bytes(b"x")
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
from pathlib import Path
import numpy as np
from host import bundle
from host.errors import DeviceFull
from tests.unit.bundle.samples import GOLDEN, draft
folder = Path({str(tmp_path)!r})
try:
    bundle.write_tvm(folder / "b", draft(), folder / "some.so", [np.zeros(1 << 20)], GOLDEN)
except DeviceFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no space left while writing")


def test_a_variant_shares_what_does_not_differ(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(b"another library")
    first = bundle.load(made)
    fewer = bundle.write_variant(tmp_path / "fewer", made, threads=3)
    variant = bundle.write_variant(tmp_path / "variant", made, threads=1, library=other)
    assert bundle.load(tmp_path / "fewer") == fewer
    assert bundle.load(tmp_path / "variant") == variant
    assert (fewer.threads, variant.threads, variant.name) == (3, 1, first.name)
    assert len({first.content_hash, fewer.content_hash, variant.content_hash}) == 3
    assert variant.parameters == first.parameters
    assert (tmp_path / "variant" / "lib.so").read_bytes() == b"another library"
    for name in ("params.bin", "golden.npz"):
        assert (tmp_path / "variant" / name).samefile(made / name)
    # The others stay whole when one goes.
    assert bundle.load(made) == first


def language_model() -> Draft:
    tokens = Signature(
        (TensorSpec("tokens", (1,), "int32"), TensorSpec("position", (1,), "int32")),
        (TensorSpec("logits", (1, 8), "float32"),),
    )
    changes = {
        "signature": signature_part(tokens),
        "state": (StateTensor(name="key_0", shape=(2, 4), dtype="float32"),),
        "decoder": DecoderPart(context=32, chunk=16, vocabulary=8, end_tokens=(7,)),
    }
    return draft().model_copy(update=changes)


@pytest.mark.parametrize("written", [True, False])
def test_state_has_a_schema_of_its_own_and_a_tokenizer_is_a_file(written: bool, tmp_path: Path) -> None:
    library, tokenizer = tmp_path / "some.so", tmp_path / "any.json"
    library.write_bytes(b"not really a library")
    tokenizer.write_text("{}")
    folder = tmp_path / "bundle"
    given = tokenizer if written else b"{}"
    bundle.write_tvm(folder, language_model(), library, PARAMETERS, (), tokenizer=given, chat=b"[]")
    fields = json.loads((folder / "manifest.json").read_text())
    assert fields["schema"] == "edgetlm.bundle/3"
    assert fields["state"] == [{"name": "key_0", "shape": [2, 4], "dtype": "float32"}]
    # Fields that say nothing are not there: digests of bundles stay.
    assert fields["decoder"] == {"context": 32, "chunk": 16, "vocabulary": 8, "end_tokens": [7]}
    manifest = bundle.load(folder)
    assert {"tokenizer.json", "chat.json"} <= set(manifest.files) and manifest.decoder is not None
    # A variant of it keeps all of that.
    changed = bundle.write_variant(tmp_path / "variant", folder, threads=2)
    assert (changed.bundle_schema, changed.state, changed.decoder) == (
        manifest.bundle_schema,
        manifest.state,
        manifest.decoder,
    )
    assert (tmp_path / "variant" / "tokenizer.json").read_text() == "{}"
    assert (tmp_path / "variant" / "chat.json").read_text() == "[]"


def test_a_bundle_without_state_says_nothing_of_it(made: Path) -> None:
    fields = json.loads((made / "manifest.json").read_text())
    assert fields["schema"] == "edgetlm.bundle/2"
    assert not {"state", "decoder"} & set(fields)
