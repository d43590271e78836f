"""An engine: the reference evaluator of the onnx package, which computes each operator with NumPy.

The host reads `TITLE`, `FORMATS` and `MODULES`; the device calls `create`, so the package has to be installed
there as well. Import what is heavy inside of the functions.
"""

from __future__ import annotations

from typing import Any

TITLE = "ONNX reference evaluator"
FORMATS = ("onnx",)
# Any one of these modules makes the engine available.
MODULES = ("onnx",)


class ReferenceEngine:
    """Runs one model; only `invoke` is timed."""

    def load(self, path: str, threads: int) -> dict[str, Any]:
        """Read the model; returns the signature as far as the engine knows it."""
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(path)
        return {}

    def bind(self, inputs: Any) -> None:
        """Set the inputs of the following calls, in the model's order."""
        from device_agent.execute.engines.arrays import to_array

        self._feeds = dict(zip(self._evaluator.input_names, map(to_array, inputs), strict=True))

    def invoke(self) -> None:
        """Run one inference."""
        self._results = self._evaluator.run(None, self._feeds)

    def outputs(self) -> list[Any]:
        """The outputs of the last inference, in the model's order."""
        from device_agent.execute.engines.arrays import from_array

        return [from_array(result) for result in self._results]


def create() -> ReferenceEngine:
    """A new engine; raises ImportError where its package is missing."""
    import onnx.reference  # noqa: F401

    return ReferenceEngine()
