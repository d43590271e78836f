"""Compile a neural network for an edge device, measure it there, and deploy it.

    import sdk
    result = sdk.deploy("model.onnx", device="local")
    with sdk.connect("local") as device:
        outputs = device.run(result.bundle, {"input": array})

The command line `sdk` is the same calls with their results printed.
"""

from __future__ import annotations

from sdk.api import compile, connect, deploy, deploy_fleet, load, tune

__all__ = ["compile", "connect", "deploy", "deploy_fleet", "load", "tune"]
