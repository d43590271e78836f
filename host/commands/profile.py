"""`sdk profile`: measure a model or a bundle on a device without installing it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from host import bundle
from host.compare.backends import Choice, require_verified
from host.compare.comparison import ComparisonSettings, compare_engines
from host.compare.entrants import Entrant
from host.compile.device_profile import profile_of
from host.compile.ranged_model import inputs_to_measure
from host.compile.task_outcome import TaskOutcome, with_times
from host.deploy.deployment import deploy
from host.deploy.result import DeployResult
from host.errors import ModelFileError, UserError
from host.language_file import language_format
from host.manifest import Manifest
from host.model import Layer, Signature
from host.options import DeployOptions, Number, Size
from host.progress import Progress, Silence, StageClock
from host.versions import versions


def profile(
    model: Path,
    device: str = "local",
    threads: int = 0,
    shapes: Mapping[str, tuple[Size, ...]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    lengths: tuple[int, ...] = (),
    trust: str = "signed",
    values: Mapping[str, tuple[Number, ...]] | None = None,
) -> DeployResult:
    """Measure a model file (compiled, and with its peers) or a bundle.

    Args:
        model: model file, bundle directory or bundle zip.
        device: name of the device.
        threads: threads for the model; 0 takes the bundle's own, or all cores of the device.
        shapes: shapes of inputs with open dimensions, by name.
        seed: of every random choice.
        progress: receives the stages.
        lengths: lengths of a range to measure at; () takes a few, or those of the bundle.
        trust: in the signer of a bundle: "signed" or "unsigned".
        values: numbers of inputs that are fixed, by name.

    Raises:
        EdgeError: as `deploy`.
    """
    if not model.exists():
        raise ModelFileError(f"{model}: no such file")
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        # A folder is a bundle, or a model of transformers.
        if (model.is_dir() and not language_format(model)) or model.suffix == ".zip":
            if shapes:
                raise UserError("--shape goes with a model file; a bundle has its shapes: use --lengths")
            if values:
                raise UserError("--value goes with a model file: the inputs of a bundle are fixed already")
            return _profile_bundle(model, Path(folder), device, threads, progress, lengths, trust)
        options = DeployOptions(
            model=model,
            device=device,
            threads=threads,
            shapes=dict(shapes or {}),
            values=dict(values or {}),
            lengths=lengths,
            seed=seed,
            bundle=Path(folder) / "bundle",
            install=False,
        )
        return deploy(options, progress)


def _profile_bundle(
    path: Path,
    scratch: Path,
    device_name: str,
    threads: int,
    progress: Progress | None,
    lengths: tuple[int, ...],
    trust: str,
) -> DeployResult:
    from host.transport import connect

    clock = StageClock(progress or Silence())
    directory = bundle.unpacked(path, scratch)
    manifest = bundle.load(directory)
    signature = _measured_at(path, manifest.typed_signature(), lengths)
    with connect(device_name) as device:
        bundle.require_processor(manifest, str(path), device.describe(), device_name)
        used = profile_of(device, threads or manifest.threads)
        entrant = Entrant(manifest.backend, manifest.backend, directory, used.threads, trust=trust)
        golden = bundle.golden_cases(directory, manifest)
        settings = ComparisonSettings(
            device=device,
            signature=signature,
            golden=golden,
            inputs=inputs_to_measure(signature, golden),
            clock=clock,
            rounds=DeployOptions(model=path).rounds,
        )
        comparison = compare_engines(settings, [entrant])
        require_verified(comparison.results, manifest.backend)
        return DeployResult(
            name=manifest.name,
            bundle=path,
            device=device_name,
            machine=device.describe(),
            threads=used.threads,
            signature=signature,
            choice=Choice(manifest.backend, "the bundle's backend"),
            contenders=comparison.results,
            ratios=comparison.ratios(),
            tasks=with_times(_outcomes(manifest), comparison.kernel_times_s),
            fallback=manifest.reason,
            seconds=clock.seconds(),
            stages=clock.spans(),
            versions={**versions(), **used.software},
            command=manifest.command,
            installed=False,
            lengths=comparison.at_lengths(signature),
            memory=manifest.memory,
            timing=device.timing,
        )


def _measured_at(path: Path, signature: Signature, lengths: tuple[int, ...]) -> Signature:
    """The signature with the lengths to measure at."""
    if not lengths:
        return signature
    if signature.length is None:
        raise UserError(f"--lengths: the bundle {path} is of one length: leave it out")
    span = signature.length
    for length in lengths:
        if not span.low <= length <= span.high:
            raise UserError(f"--lengths {length} is outside the range {span.name}={span.low}..{span.high}")
    return replace(signature, length=replace(span, measured=lengths))


def _outcomes(manifest: Manifest) -> tuple[TaskOutcome, ...]:
    return tuple(
        TaskOutcome(
            name=kernel.name,
            workload_hash=kernel.task,
            weight=kernel.weight,
            source=kernel.source,
            rule=kernel.rule,
            decisions=kernel.decisions,
            from_database=kernel.from_database,
            layers=tuple(Layer(**layer.model_dump()) for layer in kernel.layers),
        )
        for kernel in manifest.kernels
    )
