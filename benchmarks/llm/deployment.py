"""Deploys one language model, in a process of its own: `python -m benchmarks.llm.deployment REQUEST`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.result_file import ROOT
from host.errors import EngineError


def deployed(
    model: Path, bundle: Path, *, quantize: str, threads: int, context: int, sequences: int = 1
) -> dict[str, Any]:
    """Deploy a model on this machine, without installing it.

    Args:
        model: its folder.
        bundle: directory to write.
        quantize: "int8", "int4", or "none" for single precision.
        threads: to compute with.
        context: tokens that it keeps.
        sequences: texts that it keeps.

    Returns:
        `verified`, the largest relative error `max_rel_err`, and the seconds it took, `deploy_s`.

    Raises:
        EngineError: there is no bundle.
    """
    files = {"model": str(model.absolute()), "bundle": str(bundle)}
    request = {**files, "quantize": quantize, "threads": threads, "context": context, "sequences": sequences}
    start_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.llm.deployment", json.dumps(request)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not bundle.is_dir():
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise EngineError(f"the model is not deployed: {lines[-1] if lines else done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer | {"deploy_s": time.perf_counter() - start_s}


def _deploy(request: dict[str, Any]) -> dict[str, Any]:
    from host.deploy import DeployOptions, deploy

    options = DeployOptions(
        model=Path(request["model"]),
        quantize="" if request["quantize"] == "none" else request["quantize"],
        context_tokens=request["context"],
        sequences=request["sequences"],
        backend="tvm",
        threads=request["threads"],
        bundle=Path(request["bundle"]),
        install=False,
        command="python -m benchmarks.llm",
    )
    verification = deploy(options).contenders["tvm"].verification
    assert verification is not None
    return {"verified": verification.passed, "max_rel_err": verification.max_rel_err}


if __name__ == "__main__":
    print(json.dumps(_deploy(json.loads(sys.argv[1]))))
