"""A bundle: a directory (or a zip of one) with everything that a device needs to run one model.

    manifest.json   what it is: schema version, size and hash of every file, signature, parameters, figures
    manifest.sig    who made it: signature of the manifest by the host's key
    lib.so          compiled model (backend tvm)
    params.bin      its parameters, each at a 64-byte boundary (backend tvm)
    model.*         the model file itself (backends onnxruntime and litert)
    golden.npz      golden cases: `caseN_inputI` and `caseN_outputI`, `caseN_spread` where the model has one,
                    `caseN_shares` where outputs are classes (no number for the others), `caseN_function`
                    where it is not main that takes the inputs
    tasks.json      the kernels' unscheduled functions and what they were made for (backend tvm)

Nothing else may lie in it. What must hold of it is in `device_agent.contract`, for the host and the device.
"""

from __future__ import annotations

from host.bundle.creation import (
    ALIGNMENT,
    pack,
    update,
    write_engine,
    write_tvm,
    write_variant,
)
from host.bundle.reading import (
    TASKS,
    golden_cases,
    load,
    manifest_from,
    read_manifest,
    require_processor,
    runnable_bytes,
    unpacked,
)

__all__ = [
    "ALIGNMENT",
    "TASKS",
    "golden_cases",
    "load",
    "manifest_from",
    "pack",
    "read_manifest",
    "require_processor",
    "runnable_bytes",
    "unpacked",
    "update",
    "write_engine",
    "write_tvm",
    "write_variant",
]
