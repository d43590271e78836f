"""ONNX Runtime on a single node, without what it does to enter and leave its own layout.

A network's images stay in the library's blocked layout from one node to the next; a model of one node
reorders its input and its output every time, which is half of the time of a pooling. Our functions are
measured in our layout, so the library's are in its own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_REORDER = "Reorder"
_RUNS = 60


def layout_share(model: Path, inputs: Sequence[np.ndarray], threads: int) -> float:
    """Share of the nodes' time that goes into reordering, from 0 to 1, by the library's own profiler."""
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        names = [entry.name for entry in session.get_inputs()]
        for _ in range(_RUNS):
            session.run(None, dict(zip(names, inputs, strict=True)))
        events = json.loads(Path(session.end_profiling()).read_text())
    times: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (str(event["args"]["op_name"]), str(event["name"]))
            times.setdefault(key, []).append(float(event["dur"]))
    medians = {key: float(np.median(samples)) for key, samples in times.items()}
    reorder = sum(value for (node, _), value in medians.items() if node.startswith(_REORDER))
    return reorder / sum(medians.values())
