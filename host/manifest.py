"""The schema of manifest.json, a bundle's description, which the host and the device agent share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from device_agent.contract.manifest import SCHEMA, STATE_SCHEMA, content_digest
from host.model import Decoder, LengthRange, MemoryUse, Signature, TensorSpec
from host.options import Backend


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Tensor(_Part):
    """One input or output.

    Attributes:
        shape: at the greatest length, where one dimension is open.
        open: the axes that change with the length.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    open: tuple[int, ...] = ()


class LengthPart(_Part):
    """The range of the open dimension, both ends served, and the lengths that were measured."""

    name: str
    low: int
    high: int
    measured: tuple[int, ...] = ()


class SignaturePart(_Part):
    """Inputs and outputs, in order; `length` is None where every dimension is a number."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    length: LengthPart | None = None


class StateTensor(_Part):
    """A tensor that the model keeps from call to call."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class DecoderPart(_Part):
    """What a language model has beside its signature; see `host.model.Decoder`.

    `verified`, `sequences` and `long_chunk` are None where there is no such function, and `rounding` where a
    prefill rounds as a step does.
    """

    context: int
    chunk: int
    vocabulary: int
    end_tokens: tuple[int, ...]
    verified: int | None = None
    sequences: int | None = None
    rounding: int | None = None
    long_chunk: int | None = None

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a field that says nothing: other bundles keep their digests."""
        fields: dict[str, Any] = write(self)
        return {name: value for name, value in fields.items() if value is not None}


class Parameter(_Part):
    """The place of one parameter in params.bin."""

    offset: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


class LayerPart(_Part):
    """An operation of the model file that a kernel computes; see `host.model.Layer`."""

    position: int
    name: str
    operator: str
    source: str = ""

    @property
    def text(self) -> str:
        """For people, in one line."""
        return f"{self.name} ({self.operator}{f', {self.source}' if self.source else ''})"


class Kernel(_Part):
    """One kernel of the model and who made it.

    Attributes:
        task: workload hash.
        weight: calls in one run of the model.
        source: "gensor", "tlm", "evolutionary", "default", ...
        rule: the rule of the design space.
        decisions: what was decided, by name.
        from_database: the program was found in the record store.
        latency_us: microseconds of one call inside the model; None where not measured.
        layers: of the model file, which it computes over all its calls.
    """

    name: str
    task: str
    weight: int
    source: str
    rule: str = ""
    decisions: dict[str, Any] = Field(default_factory=dict)
    from_database: bool = False
    latency_us: float | None = None
    layers: tuple[LayerPart, ...] = ()


class Origin(_Part):
    """The model file that the bundle was made from."""

    name: str
    format: str
    content_hash: str


class MemoryPart(_Part):
    """What the model takes of the device's memory while it runs; see `MemoryUse`."""

    weights_bytes: int
    activations_bytes: int
    workspace_bytes: int | None = None
    peak_bytes: int


class FilePart(_Part):
    """A file of the bundle: its size in bytes and its SHA-256."""

    size: int
    sha256: str


class Manifest(_Part):
    """The contents of `manifest.json`, in the order in which they are written."""

    bundle_schema: str = Field(default=SCHEMA, alias="schema")
    name: str
    backend: Backend
    files: dict[str, FilePart]
    signature: SignaturePart
    origin: Origin
    model: str
    entry: str = "main"
    state: tuple[StateTensor, ...] = ()
    decoder: DecoderPart | None = None
    streamed: bool = False
    parameters: tuple[Parameter, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    threads: int = 1
    dtype: str = "fp32"
    target: dict[str, Any] = Field(default_factory=dict)
    measured: dict[str, Any] = Field(default_factory=dict)
    memory: MemoryPart | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    reason: str = ""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    @model_serializer(mode="wrap")
    def _without_absent_state(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """All fields, without those that are not there: such a bundle is as it was before there were any."""
        found: dict[str, Any] = fields(self)
        absent = [name for name in ("state", "decoder", "streamed") if name in found and not found[name]]
        return {name: value for name, value in found.items() if name not in absent}

    @property
    def content_hash(self) -> str:
        """A digest of what the bundle computes, which its figures do not change."""
        return content_digest(self.model_dump(by_alias=True))

    def typed_signature(self) -> Signature:
        """The signature as the host's type."""
        part = self.signature
        return Signature(
            tuple(TensorSpec(t.name, t.shape, t.dtype, t.open) for t in part.inputs),
            tuple(TensorSpec(t.name, t.shape, t.dtype, t.open) for t in part.outputs),
            LengthRange(**part.length.model_dump()) if part.length is not None else None,
        )


class Draft(_Part):
    """The fields of a manifest that do not follow from the files; see `Manifest`."""

    name: str
    backend: Backend
    signature: SignaturePart
    origin: Origin
    state: tuple[StateTensor, ...] = ()
    decoder: DecoderPart | None = None
    streamed: bool = False
    kernels: tuple[Kernel, ...] = ()
    threads: int = 1
    dtype: str = "fp32"
    target: dict[str, Any] = Field(default_factory=dict)
    memory: MemoryPart | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    reason: str = ""


def memory_part(memory: MemoryUse) -> MemoryPart:
    """The manifest's form of what a model takes."""
    return MemoryPart(**asdict(memory), peak_bytes=memory.peak_bytes)


def signature_part(signature: Signature) -> SignaturePart:
    """The manifest's form of a signature."""
    return SignaturePart(
        inputs=tuple(_tensor(spec) for spec in signature.inputs),
        outputs=tuple(_tensor(spec) for spec in signature.outputs),
        length=LengthPart(**asdict(signature.length)) if signature.length is not None else None,
    )


def schema_of(state: Sequence[StateTensor]) -> str:
    """The schema of a bundle: another one where there is state, which older runtimes do not pass."""
    return STATE_SCHEMA if state else SCHEMA


def state_part(state: Sequence[TensorSpec]) -> tuple[StateTensor, ...]:
    """The manifest's form of what a model keeps between calls."""
    return tuple(StateTensor(name=spec.name, shape=spec.shape, dtype=spec.dtype) for spec in state)


def decoder_part(decoder: Decoder | None) -> DecoderPart | None:
    """The manifest's form of what a language model has beside its signature."""
    if decoder is None:
        return None
    return DecoderPart(
        context=decoder.context,
        chunk=decoder.chunk,
        vocabulary=decoder.vocabulary,
        end_tokens=decoder.end_tokens,
        verified=decoder.verified or None,
        sequences=decoder.sequences if decoder.sequences > 1 else None,
        rounding=decoder.rounding or None,
        long_chunk=decoder.long_chunk or None,
    )


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor(name=spec.name, shape=spec.shape, dtype=spec.dtype, open=spec.open)
