"""A model file as ncnn's own files, by pnnx where that is installed: nothing of ours converts for it."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from host.errors import EngineError
from host.model import Signature

# pnnx's names of element types ("inputshape=[1,3,224,224]f32").
_TYPES = {"float32": "f32", "float16": "f16", "float64": "f64", "int64": "i64", "int32": "i32", "uint8": "u8"}
_TIME_LIMIT_S = 600.0


def ncnn_files(model: Path, signature: Signature, folder: Path) -> Path:
    """Convert a model.

    Args:
        model: ONNX file with all shapes pinned.
        signature: of it.
        folder: where the result grows.

    Returns:
        A folder with one `.param` and one `.bin` file.

    Raises:
        EngineError: pnnx is not installed, or does not convert it; the message says what else there is.
    """
    program = _pnnx()
    if program is None:
        raise EngineError("ncnn reads files of its own: install pnnx, or give --peer-file ncnn=FOLDER")
    work, output = folder / "pnnx", folder / "ncnn"
    work.mkdir(parents=True)
    output.mkdir()
    copy = work / "model.onnx"
    shutil.copyfile(model, copy)
    shapes = ",".join(
        f"[{','.join(map(str, spec.shape))}]{_TYPES.get(spec.dtype, '')}" for spec in signature.inputs
    )
    try:
        done = subprocess.run(
            [program, copy.name, f"inputshape={shapes}"],
            cwd=work,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"pnnx does not convert {model.name}: {error}; give --peer-file ncnn=FOLDER"
        ) from error
    made = [work / f"model.ncnn{suffix}" for suffix in (".param", ".bin")]
    if done.returncode != 0 or not all(path.is_file() for path in made):
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = lines[-1] if lines else f"it ended with code {done.returncode}"
        raise EngineError(f"pnnx does not convert {model.name}: {reason}; give --peer-file ncnn=FOLDER")
    for path in made:
        path.replace(output / path.name)
    shutil.rmtree(work)
    return output


def _pnnx() -> str | None:
    """The program, out of its package or on the path."""
    spec = importlib.util.find_spec("pnnx")
    packaged = Path(spec.origin).parent / "pnnx" if spec is not None and spec.origin else None
    if packaged is not None and packaged.is_file():
        return str(packaged)
    return shutil.which("pnnx")
