"""Runs a bundle on a device from the host, as a function of arrays.

    python examples/run_from_host.py edgetlm-out/mobilenetv2/bundle --device orin

The first call sends the bundle, unless the device has it, and loads it; the ones after it send inputs only.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import sdk

options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("bundle", type=Path, help="folder of a bundle")
options.add_argument("--device", default="local", help="name of the device")
options.add_argument("--runs", type=int, default=5)
asked = options.parse_args()

signature = json.loads((asked.bundle / "manifest.json").read_text())["signature"]
random = np.random.default_rng(0)
inputs = {
    one["name"]: random.normal(size=one["shape"]).astype(one["dtype"])
    if one["dtype"].startswith("float")
    else np.ones(one["shape"], one["dtype"])
    for one in signature["inputs"]
}
with sdk.connect(asked.device) as device:
    for run in range(asked.runs):
        begin = time.perf_counter()
        outputs = device.run(asked.bundle, inputs)
        print(f"call {run + 1}: {(time.perf_counter() - begin) * 1e3:.1f} ms")
for name, value in outputs.items():
    print(f"{name} {value.dtype}{list(value.shape)} {value.reshape(-1)[:4]}")
