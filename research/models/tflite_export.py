"""Export to TFLite, in the environment that `scripts/make_environment.py tflite-export` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def environment(name: str) -> Path:
    """The interpreter of an environment apart, made if it is missing.

    Raises:
        RuntimeError: it could not be made.
    """
    script = _ROOT / "scripts" / "make_environment.py"
    if not script.is_file():
        raise RuntimeError(f"environment {name} is made by scripts of the repository: use a checkout of it")
    result = subprocess.run([sys.executable, str(script), name], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"environment {name} could not be made: {result.stderr.strip()}")
    return Path(result.stdout.strip())


def export_tflite(name: str, path: Path, seed: int) -> Path:
    """Write model `name` of the zoo as TFLite.

    Returns:
        A file beside `path`, to be renamed to it.

    Raises:
        RuntimeError: the converter failed.
    """
    partial = path.with_name(f"partial-{path.name}")
    command = [
        str(environment("tflite-export")),
        "-m",
        "research.models.tflite_export",
        name,
        str(partial.resolve()),
    ]
    # The environment was installed without bytecode: the first conversion keeps what the next one imports.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(
        [*command, str(seed)], cwd=_ROOT, env=variables, capture_output=True, text=True, check=False
    )
    if result.returncode != 0 or not partial.is_file():
        raise RuntimeError(f"litert-torch could not convert {name}: {result.stderr.strip()[-400:]}")
    return partial


def _convert(name: str, path: str, seed: int) -> None:
    import litert_torch

    from research.models.zoo import make

    module, inputs = make(name, seed)
    litert_torch.convert(module, inputs).export(path)


if __name__ == "__main__":
    _convert(sys.argv[1], sys.argv[2], int(sys.argv[3]))
