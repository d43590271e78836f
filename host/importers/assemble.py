"""What the importers of all formats share: hashes, signatures, and checks of the module that comes out."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from host.errors import ImportFailed
from host.importers.tidy import tidy
from host.model import GoldenCase, ImportedModel, Signature, TensorSpec


def content_hash(files: Sequence[Path], shapes: Mapping[str, Sequence[int]]) -> str:
    """SHA-256 over the files' bytes and the pinned shapes."""
    digest = hashlib.sha256(json.dumps({name: list(shape) for name, shape in shapes.items()}).encode())
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def work_file(digest: str, name: str) -> Path:
    """Where a pinned copy of a model is kept: in the user's cache, by content."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "edgetlm" / "models" / digest[:24]
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def output_specs(names: Sequence[str], golden: Sequence[GoldenCase]) -> tuple[TensorSpec, ...]:
    """Outputs as the original runtime made them.

    Raises:
        ImportFailed: an output is a sequence or another thing that is not a tensor of numbers.
    """
    for name, value in zip(names, golden[0].outputs, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
            raise ImportFailed(f"output {name!r} is not a tensor of numbers, and only those can leave a model")
    return tuple(
        TensorSpec(name, value.shape, value.dtype.name)
        for name, value in zip(names, golden[0].outputs, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Conversion:
    """The outcome of building the relax module: the module, or why there is none."""

    signature: Signature
    module: tvm.IRModule | None
    reason: str = ""
    operator: str | None = None

    @classmethod
    def attempt(cls, build: Callable[[], tvm.IRModule], signature: Signature) -> Conversion:
        """Build a module and check it against the signature; failures become a reason.

        Args:
            build: makes the module; it raises ImportFailed if it cannot.
            signature: what the original runtime takes and gives.
        """
        try:
            module = tidy(build())
            _check(module, signature)
        except ImportFailed as error:
            return cls(signature, None, str(error), error.operator)
        return cls(signature, module)

    def model(
        self, name: str, format_name: str, path: Path, golden: tuple[GoldenCase, ...], digest: str
    ) -> ImportedModel:
        """All of it as the noun that the rest of the host works with."""
        return ImportedModel(
            name, format_name, path, self.signature, self.module, golden, digest, self.reason, self.operator
        )


def _check(module: tvm.IRModule, signature: Signature) -> None:
    """Refuse a module whose interface is not the model's.

    Raises:
        ImportFailed: another number, shape or type of inputs or outputs than the original runtime has.
    """
    function = module["main"]
    result = function.ret_ty
    outputs = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    for kind, made, wanted in (
        ("input", [parameter.ty for parameter in function.params], signature.inputs),
        ("output", outputs, signature.outputs),
    ):
        if len(made) != len(wanted):
            raise ImportFailed(f"the conversion has {len(made)} {kind}s where the model has {len(wanted)}")
        for have, spec in zip(made, wanted, strict=True):
            text = describe_type(have)
            if text != f"{spec.dtype}{list(spec.shape)}":
                raise ImportFailed(
                    f"the conversion makes {kind} {spec.name!r} {text}, the model {spec.dtype}{list(spec.shape)}"
                )


def describe_type(value: relax.Type) -> str:
    """A tensor type as `float32[1, 3]`; sizes that are not numbers appear as expressions."""
    if not isinstance(value, relax.TensorType) or value.shape is None:
        return str(value)
    sizes = ", ".join(str(getattr(size, "value", size)) for size in value.shape.values)
    return f"{value.dtype}[{sizes}]"
