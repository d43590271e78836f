"""A bundle of the model of `tests.tiny_decoder`, compiled for any x86-64 machine."""

from __future__ import annotations

from pathlib import Path

import tvm

from host import bundle
from host.build import build_model
from host.compile.static_model import memory_use
from host.lowering import lower
from host.manifest import Draft, Origin, decoder_part, memory_part, signature_part, state_part
from tests import tiny_decoder as tiny
from tests.unit.lowering.harness import board


def write_tiny(
    folder: Path,
    tokenizer: Path | None = None,
    *,
    several: bool = False,
    prefilling: tvm.tirx.PrimFunc = tiny.steps,
    long_prefilling: tvm.tirx.PrimFunc | None = None,
    chat: bytes | None = None,
) -> Path:
    model = tiny.imported(tokenizer, several=several, prefilling=prefilling, long_prefilling=long_prefilling)
    lowered = lower(model, board())
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "tiny.so"
    stats = build_model(lowered, {}, library)
    draft = Draft(
        name="tiny",
        backend="tvm",
        signature=signature_part(model.signature),
        origin=Origin(name="tiny", format=model.format, content_hash=model.content_hash),
        state=state_part(model.state),
        decoder=decoder_part(model.decoder),
        memory=memory_part(memory_use(lowered, stats, 1)),
    )
    golden = (*model.golden, *(tiny.function_cases() if several else ()))
    golden += tiny.long_cases() if long_prefilling is not None else ()
    bundle.write_tvm(
        folder / "bundle", draft, library, lowered.parameters, golden, tokenizer=tokenizer, chat=chat
    )
    return folder / "bundle"
