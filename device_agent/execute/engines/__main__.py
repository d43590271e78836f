"""Runs a model once on each given case, then ends. A host makes reference outputs with this program.

`python -m device_agent.execute.engines ENGINE MODEL CASES THREADS INPUTS OUTPUTS ERROR`: INPUTS and OUTPUTS
are .npz files, each with an array `CASE/INDEX` for every tensor. ERROR is written instead of OUTPUTS if
something fails. With `as-written` as a last argument, the engine runs the model without rewriting it (ONNX
Runtime only).
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Sequence

import numpy

from device_agent.errors import AgentError
from device_agent.execute import engines
from device_agent.execute.engines.arrays import from_array, to_array


def run_cases(engine: Any, archive: Any, cases: int) -> Dict[str, Any]:
    """The outputs of every case, and the number of outputs of each case under the name `counts`.

    Raises:
        AgentError: the engine refuses the inputs or cannot run the model.
    """
    results: Dict[str, Any] = {}
    counts: List[int] = []
    for case in range(cases):
        count = sum(name.startswith("%d/" % case) for name in archive.files)
        engine.bind([from_array(archive["%d/%d" % (case, index)]) for index in range(count)])
        engine.invoke()
        outputs = engine.outputs()
        counts.append(len(outputs))
        results.update({"%d/%d" % (case, index): to_array(value) for index, value in enumerate(outputs)})
    results["counts"] = numpy.array(counts)
    return results


def main(arguments: Sequence[str]) -> int:
    """Writes the outputs and returns 0, or writes one line about the failure and returns 1."""
    name, model, cases, threads, inputs_file, outputs_file, error_file = arguments[:7]
    try:
        engine = engines.create(name)
        if hasattr(engine, "exact"):
            engine.exact()
        if "as-written" in arguments[7:]:
            engine.as_written()
        engine.load(model, int(threads))
        with numpy.load(inputs_file) as archive:
            results = run_cases(engine, archive, int(cases))
    except AgentError as error:
        with open(error_file, "w", encoding="utf-8") as stream:
            json.dump({"message": str(error)}, stream)
        return 1
    numpy.savez(outputs_file, **results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
