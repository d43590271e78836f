"""The manifest of a bundle before anything was measured."""

from __future__ import annotations

from host.manifest import Draft, MemoryPart, Origin, decoder_part, signature_part, state_part
from host.model import DeviceProfile, ImportedModel
from host.options import Backend, CompileOptions
from host.versions import versions


def draft_of(
    model: ImportedModel,
    options: CompileOptions,
    profile: DeviceProfile,
    backend: Backend,
    reason: str = "",
    memory: MemoryPart | None = None,
    streamed: bool = False,
) -> Draft:
    """The manifest of one model for one device, without its files.

    Args:
        model: the imported model.
        options: of the command.
        profile: of the device.
        backend: the engine that runs it.
        reason: why there is no compiled model in it; "" if there is no reason to give.
        memory: what it takes; None where that is not known.
        streamed: whether a call reads most of the weights once, see `LoweredModel.streams`.
    """
    return Draft(
        name=model.name,
        backend=backend,
        signature=signature_part(model.signature),
        origin=Origin(name=options.model.name, format=model.format, content_hash=model.content_hash),
        state=state_part(model.state) if backend == "tvm" else (),
        decoder=decoder_part(model.decoder) if backend == "tvm" else None,
        streamed=streamed,
        threads=profile.threads,
        dtype=options.dtype if backend == "tvm" else "fp32",
        target=dict(profile.board.tvm_target),
        memory=memory,
        versions={**versions(), **profile.software},
        command=options.command,
        reason=reason,
    )
