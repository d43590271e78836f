"""Runs a model once on each given case, then ends. A host makes reference outputs with this program.

`python -m device_agent.execute.engines ENGINE MODEL CASES THREADS INPUTS OUTPUTS ERROR`: INPUTS and OUTPUTS
are .npz files, each with an array `CASE/INDEX` for every tensor and their element types under `types`, since
the format keeps no type that NumPy lacks. ERROR is written instead of OUTPUTS if something fails. With
`unoptimised` as a last argument, the engine runs the model without its graph optimisations (ONNX Runtime and
LiteRT only). With `also-unoptimised UNOPTIMISED` it runs the model in both ways, one after the other: what
the second way gives is in UNOPTIMISED, which is missing where that way fails. `also-unoptimised-at-once` is
the same with both ways side by side, and with the memory of both.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Sequence

import numpy

from device_agent.contract.tensors import with_type, without_type
from device_agent.errors import AgentError
from device_agent.execute import engines
from device_agent.execute.engines.arrays import from_array, to_any_array


def run_cases(engine: Any, archive: Any, cases: int) -> Dict[str, Any]:
    """The outputs of every case, their number in each case as `counts`, and their element types as `types`.

    Raises:
        AgentError: the engine refuses the inputs or cannot run the model.
    """
    results: Dict[str, Any] = {}
    counts: List[int] = []
    given = iter(archive["types"].tolist())
    for case in range(cases):
        count = sum(name.startswith("%d/" % case) for name in archive.files)
        arrays = [with_type(archive["%d/%d" % (case, index)], next(given)) for index in range(count)]
        engine.bind([from_array(array) for array in arrays])
        engine.invoke()
        outputs = engine.outputs()
        counts.append(len(outputs))
        results.update({"%d/%d" % (case, index): to_any_array(value) for index, value in enumerate(outputs)})
    types = [str(array.dtype) for array in results.values()]
    kept = {name: without_type(array) for name, array in results.items()}
    return dict(kept, counts=numpy.array(counts), types=numpy.array(types, dtype=str))


def _engine(arguments: Sequence[str], unoptimised: bool) -> Any:
    """The engine for one way, which has no model yet.

    Raises:
        AgentError: there is no such engine on this device.
    """
    engine = engines.create(arguments[0])
    if hasattr(engine, "exact"):
        engine.exact()
    if unoptimised:
        engine.unoptimised()
    return engine


def _outputs(engine: Any, arguments: Sequence[str]) -> Dict[str, Any]:
    """The results of all cases in one way.

    Raises:
        AgentError: see `run_cases`.
    """
    model, cases, threads, inputs_file = arguments[1:5]
    engine.load(model, int(threads))
    with numpy.load(inputs_file) as archive:
        return run_cases(engine, archive, int(cases))


def _write_outputs(engine: Any, arguments: Sequence[str], path: str) -> None:
    # The other way may end this process: outputs that have their name are whole.
    partial = path + ".partial.npz"
    numpy.savez(partial, **_outputs(engine, arguments))
    os.replace(partial, path)


def _write_unoptimised(arguments: Sequence[str], path: str) -> None:
    """Writes the outputs of the second way, or nothing where it fails."""
    # Whoever needs outputs that are missing asks for this way alone, and is told what fails.
    with contextlib.suppress(Exception):
        _write_outputs(_engine(arguments, unoptimised=True), arguments, path)


def _write_both(arguments: Sequence[str], path: str, unoptimised: str) -> None:
    """Writes the outputs of both ways, which run side by side.

    Raises:
        AgentError: the first way fails, by itself too.
    """
    # The first engine imports what the second one finds.
    engine = _engine(arguments, unoptimised=False)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_write_unoptimised, arguments, unoptimised)
        with contextlib.suppress(AgentError):
            _write_outputs(engine, arguments, path)
            return
    # There may be memory for one of them alone.
    del engine
    _write_outputs(_engine(arguments, unoptimised=False), arguments, path)


def main(arguments: Sequence[str]) -> int:
    """Writes the outputs and returns 0, or writes one line about the failure and returns 1."""
    outputs_file, error_file, *ways = arguments[5:]
    try:
        if ways[:1] == ["also-unoptimised-at-once"]:
            _write_both(arguments, outputs_file, ways[1])
        else:
            _write_outputs(_engine(arguments, "unoptimised" in ways), arguments, outputs_file)
    except AgentError as error:
        with open(error_file, "w", encoding="utf-8") as stream:
            json.dump({"message": str(error)}, stream)
        return 1
    if ways[:1] == ["also-unoptimised"]:
        _write_unoptimised(arguments, ways[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
