"""What a deployment compares, and how: from its options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from host.compare.comparison import ComparisonSettings
from host.compare.entrants import Entrant
from host.compile.ranged_model import inputs_to_measure
from host.engines import check_peers, engine_for_format, engines
from host.engines.ncnn_files import ncnn_files
from host.errors import EngineError, one_line
from host.model import ImportedModel
from host.options import BACKENDS, SINGLE_PRECISION, DeployOptions
from host.progress import StageClock

if TYPE_CHECKING:
    from host.transport import Device


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


def entrants_of(
    device: Device,
    model: ImportedModel,
    variant: Entrant,
    single: Entrant | None,
    options: DeployOptions,
    folder: Path,
    note: Callable[[str], None],
) -> list[Entrant]:
    """The compiled model, the original runtime, and the peers that can read the model or a file given.

    Args:
        device: that they run on.
        model: the imported model.
        variant: what is deployed: the compiled model or its own runtime.
        single: the compiled model in single precision, to measure beside it; None for none.
        options: of the deployment.
        folder: for files that a peer needs.
        note: tells the user which peer is left out.
    """
    timing = device.timing
    compiled = variant.engine == "tvm"
    threads = variant.threads
    entrants = [Entrant("tvm", "tvm", variant.path, threads)] if compiled else []
    known = engines()
    original = engine_for_format(model.format).name
    usual = [original] if known[original].peer and (timing.decides or not compiled) else []
    if "tensorrt" in device.describe().software and model.format == "onnx" and usual:
        # JetPack's own engine is there to be beaten.
        usual = [*usual, "tensorrt"]
    given = options.peers
    asked = usual if given is None else [one for one in given if one != SINGLE_PRECISION]
    entrants += [single] if single is not None else []
    needed = options.backend if options.backend not in ("auto", "tvm") else original
    if needed not in asked and (not compiled or needed != original):
        asked.append(needed)
    if model.quantisation is not None and original in asked and timing.decides:
        # What the user would have used without quantising.
        floats = model.quantisation.original
        entrants.append(Entrant(f"{original}-fp32", original, floats, threads, deployable=False))
    check_peers(asked)
    for engine in asked:
        if model.format in known[engine].formats:
            deployable = engine in BACKENDS and engine == original and not options.memory_cap_bytes
            entrants.append(Entrant(engine, engine, model.path, threads, deployable))
        elif engine in options.peer_files:
            file = options.peer_files[engine]
            entrants.append(Entrant(engine, engine, file, threads, deployable=False))
        elif engine == "ncnn" and model.format == "onnx":
            try:
                files = ncnn_files(model.path, model.signature, folder / "peer")
                entrants.append(Entrant(engine, engine, files, threads, deployable=False))
            except EngineError as error:
                note(f"{engine} is left out: {one_line(error)}")
        else:
            note(f"{engine} does not read {model.format} files and is left out")
    return entrants
