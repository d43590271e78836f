"""Compile a neural network for an edge device, measure it there, and deploy it.

    import sdk
    result = sdk.deploy("model.onnx", device="local")
    with sdk.load(result.bundle) as model:
        outputs = model.run({"input": array})

The command line `sdk` is the same calls with their results printed.
"""

from __future__ import annotations

from sdk.api import compile, connect, deploy, load, tune

__all__ = ["compile", "connect", "deploy", "load", "tune"]
