"""The settings, the variant and the entrants of a comparison, from the options of a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.contract.manifest import OF_THE_BOARD
from host.compare.comparison import TIME_LIMIT_S, ComparisonSettings, compare_variants
from host.compare.entrants import Entrant
from host.compile.ranged_model import inputs_to_measure
from host.engines import check_peers, engine_for_format, engines
from host.engines.ncnn_files import ncnn_files
from host.errors import EngineError, MeasureError, one_line
from host.language_file import is_language_model
from host.model import DeviceProfile, ImportedModel
from host.options import BACKENDS, SINGLE_PRECISION, DeployOptions
from host.progress import StageClock

if TYPE_CHECKING:
    from host.compare.selection import VariantSelection
    from host.compile.variants import Variant
    from host.transport import Device
    from host.transport.prestarted_sessions import PrestartedSessions


def comparison_settings(
    device: Device, model: ImportedModel, options: DeployOptions, clock: StageClock
) -> ComparisonSettings:
    """The settings for comparing variants of a model, or engines that run it."""
    return ComparisonSettings(
        device=device,
        signature=model.signature,
        golden=model.golden,
        inputs=inputs_to_measure(model.signature, model.golden),
        clock=clock,
        rounds=options.rounds,
        objective=options.objective,
        power_cap_w=options.power_cap_w,
        power_modes=options.power_modes,
    )


def prestarted_sessions(
    device: Device, model: ImportedModel, options: DeployOptions, profile: DeviceProfile
) -> PrestartedSessions:
    """Sessions for the compiled model and for its peers, opened while the model is compiled.

    None is opened where variants of the model are wanted, which are measured before and between which idle
    executors take memory and engines would be sent to the board, or where the device's times say nothing.

    Args:
        device: that the entrants run on.
        model: that was read.
        options: of the deployment.
        profile: of the device, with the threads of the engines.
    """
    from host.transport.prestarted_sessions import PrestartedSessions

    threads = profile.threads
    may_compare_gpu = options.processor == "auto" and profile.board.gpu is not None
    if options.compares_variants or may_compare_gpu or not device.timing.decides:
        return PrestartedSessions(device, (), threads, TIME_LIMIT_S)
    known = engines()
    compiled = options.backend in ("auto", "tvm") and model.module is not None
    peers = (engine_for_format(model.format).name,) if options.peers is None else options.peers
    # Engines of texts are compared by the texts that they continue, in sessions of their own.
    used = [one for one in peers if one in known and known[one].peer and not known[one].texts]
    read = [one for one in used if model.format in known[one].formats or one in options.peer_files]
    return PrestartedSessions(device, (*(("tvm",) if compiled else ()), *read), threads, TIME_LIMIT_S)


def selected_variant(
    settings: ComparisonSettings, variants: Sequence[Variant], options: DeployOptions
) -> tuple[Variant, VariantSelection | None]:
    """The variant that is compared with the peers, and the measurements that selected it.

    Where none can be measured and nobody asked for any, it is the first one: the comparison of engines then
    says what is wrong with it, and deploys another engine's bundle.

    Args:
        settings: of the comparison.
        variants: of the model; the first one is made by default.
        options: of the deployment.

    Raises:
        MeasureError: none has the figure that the objective needs, or none is below the cap.
        EngineError: none of those that were asked for runs.
        DeviceError: the device went away.
    """
    nothing = len(variants) == 1 and options.power_cap_w is None and not options.power_modes
    if nothing or not settings.device.timing.decides:
        return variants[0], None
    try:
        power = compare_variants(settings, variants)
    except (EngineError, MeasureError) as error:
        if options.compares_variants:
            raise
        settings.clock.progress.note(f"variants of the model are not compared: {one_line(error)}")
        return variants[0], None
    taken = power.taken
    assert taken is not None
    return next(one for one in variants if (one.name, one.threads) == (taken.name, taken.threads)), power


def entrants_of(
    model: ImportedModel,
    variant: Entrant,
    single: Entrant | None,
    options: DeployOptions,
    device: Device,
    clock: StageClock,
    folder: Path,
) -> list[Entrant]:
    """The compiled model, the original runtime, and the peers that can read the model or a file given.

    Args:
        model: that was read.
        variant: of it that was selected.
        single: the model compiled in single precision; None where it is not compared.
        options: of the deployment.
        device: that the entrants run on.
        clock: gets a note for each peer that is left out.
        folder: for files that are made for a peer.

    Raises:
        UserError: there is no such peer.
    """
    compiled, threads, timing = variant.engine == "tvm", variant.threads, device.timing
    entrants = [Entrant("tvm", "tvm", variant.path, threads)] if compiled else []
    known = engines()
    original = engine_for_format(model.format).name
    usual = [original] if known[original].peer and (timing.decides or not compiled) else []
    software = device.describe().software
    if model.format == "onnx" and usual:
        # What the board's system has is there to be beaten.
        usual += _of_the_board(software, options.dtype, model.quantisation is not None)
    given = options.peers
    asked = usual if given is None else [one for one in given if one != SINGLE_PRECISION]
    check_peers(asked)
    if is_language_model(model.format):
        # Those are compared by the texts that they continue, see `compared_texts`.
        asked = [one for one in asked if not known[one].texts]
    entrants += [single] if single is not None else []
    needed = options.backend if options.backend not in ("auto", "tvm") else original
    if needed not in asked and (not compiled or needed != original):
        asked.append(needed)
    if model.quantisation is not None and original in asked and timing.decides:
        # What the user would have used without quantising.
        floats = model.quantisation.original
        entrants.append(Entrant(f"{original}-fp32", original, floats, threads, deployable=False))
    if software.get("tensorrt") == "trtexec" and any(one.startswith("tensorrt") for one in asked):
        clock.progress.note(
            "TensorRT is measured by trtexec, which applications cannot use: where it is faster, install its "
            "Python package on the board (python3-libnvinfer) and deploy again"
        )
    for engine in asked:
        if model.format in known[engine].formats:
            deployable = engine in BACKENDS and (
                engine == original or _runs_in_applications(engine, software, options)
            )
            deployable = deployable and not options.memory_cap_bytes
            entrants.append(Entrant(engine, engine, model.path, threads, deployable))
        elif engine in options.peer_files:
            entrants.append(Entrant(engine, engine, options.peer_files[engine], threads, deployable=False))
        elif engine == "ncnn" and model.format == "onnx":
            try:
                files = ncnn_files(model.path, model.signature, folder / "peer")
                entrants.append(Entrant(engine, engine, files, threads, deployable=False))
            except EngineError as error:
                clock.progress.note(f"{engine} is left out: {one_line(error)}")
        else:
            clock.progress.note(f"{engine} does not read {model.format} files and is left out")
    return entrants


def _of_the_board(software: Mapping[str, str], dtype: str, quantised: bool) -> list[str]:
    """The engines of the board's system that are measured without being asked for.

    Args:
        software: of the board, by name.
        dtype: of the deployment.
        quantised: whether the model's file is.
    """
    way = "-int8" if quantised else "-fp16" if dtype == "fp16" else ""
    found = [f"tensorrt{way}"] if "tensorrt" in software else []
    return [*found, "onnxruntime-cuda"] if "onnxruntime-gpu" in software else found


def _runs_in_applications(engine: str, software: Mapping[str, str], options: DeployOptions) -> bool:
    """Whether an engine of the board's system may be installed.

    An application cannot use `trtexec`: the program loads its engine anew for every start.
    """
    if engine not in OF_THE_BOARD or options.processor == "cpu":
        return False
    return not (engine.startswith("tensorrt") and software.get("tensorrt") == "trtexec")
