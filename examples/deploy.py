"""Deploys a model and prints what came of it: `sdk deploy` from Python.

python examples/deploy.py model.onnx --device orin --trials 64
"""

import argparse

import sdk

options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("model", help="ONNX, .pt2 or TFLite file")
options.add_argument("--device", default="local", help="name of the device")
options.add_argument("--trials", type=int, default=0, help="kernels to measure")
options.add_argument("--threads", type=int, default=0, help="threads; 0 takes all cores of the device")
asked = options.parse_args()

deployment = sdk.deploy(asked.model, device=asked.device, trials=asked.trials, threads=asked.threads)
result = deployment.result
print(f"{result.name} runs on {result.device} in {result.choice.backend}: {result.choice.why}")
print(f"median {result.measurement.median_s * 1e3:.3f} ms, p90 {result.measurement.p90_s * 1e3:.3f} ms")
for peer, (ratio, low, high) in result.ratios.items():
    print(f"{peer} takes {ratio:.2f} times as long (95% between {low:.2f} and {high:.2f})")
print(f"bundle {deployment.bundle}")
print(f"report {deployment.report}")
