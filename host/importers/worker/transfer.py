"""An imported model as plain data and files, and back: what a worker returns, and its parent checks."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from host.errors import ImportFailed, ModelFileError
from host.files import open_plain
from host.importers.assemble import check_interface, work_file
from host.importers.worker.arrays_file import take_arrays, write_arrays
from host.importers.worker.functions import check_functions, others
from host.model import GoldenCase, ImportedModel, Signature, TensorSpec

# Constants above this many elements travel beside the module.
_APART_ELEMENTS = 256
_MODULE_BYTES = 1 << 30
_WEIGHT = "edgetlm_weight_"
# Types whose memory NumPy and TVM share: none of ml_dtypes, and NumPy hands out booleans since 1.25 only.
_SHARED = frozenset(
    [f"float{bits}" for bits in (16, 32, 64)]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)
_HASH = re.compile(r"[0-9a-f]{64}")


def pack(
    model: ImportedModel, folder: Path, written: Sequence[tuple[tvm.IRModule, dict[str, Any]]] = ()
) -> dict[str, Any]:
    """Write what is large into a folder and return the rest as plain data.

    Args:
        model: that was imported.
        folder: where its module and its golden cases go.
        written: modules that are in the folder already, with what `pack_module` returned; the last counts.
    """
    module: dict[str, Any] | None = None
    if model.module is not None:
        there = [data for one, data in written[-1:] if one is model.module]
        module = there[0] if there else pack_module(model.module, folder)
    return {
        "name": model.name,
        "format": model.format,
        "path": str(model.path),
        "inputs": [_pack_spec(spec) for spec in model.signature.inputs],
        "outputs": [_pack_spec(spec) for spec in model.signature.outputs],
        "golden": pack_golden(model.golden, folder),
        "module": module,
        "content_hash": model.content_hash,
        "reason": model.reason,
        "operator": model.operator,
        "parameters": model.parameters,
    }


def unpack(answer: Any, folder: Path, original: Path) -> ImportedModel:
    """The model of a worker's answer.

    Args:
        answer: what `pack` returned in the worker.
        folder: where it wrote.
        original: the model file that was asked for.

    Raises:
        ModelFileError: the answer does not hold together, so the worker was not itself any more.
    """
    try:
        digest = str(answer["content_hash"])
        if not _HASH.fullmatch(digest) or answer["format"] not in ("onnx", "pt2", "tflite"):
            raise ValueError
        module = None if answer["module"] is None else unpack_module(answer["module"], folder)
        model = ImportedModel(
            name=original.stem,
            format=answer["format"],
            path=kept(Path(answer["path"]), folder, original, digest),
            signature=Signature(
                tuple(_unpack_spec(spec) for spec in answer["inputs"]),
                tuple(_unpack_spec(spec) for spec in answer["outputs"]),
            ),
            module=module,
            golden=unpack_golden(answer["golden"], folder),
            content_hash=digest,
            reason=str(answer["reason"]),
            operator=None if answer["operator"] is None else str(answer["operator"]),
            parameters=_count(answer["parameters"]),
        )
        if module is not None:
            check_interface(module, model.signature)
    except (KeyError, TypeError, ValueError, AttributeError, ImportFailed) as error:
        raise ModelFileError(f"{original}: the answer of the import is damaged: import it again") from error
    return model


def pack_golden(golden: Sequence[GoldenCase], folder: Path) -> dict[str, Any]:
    """Write the arrays of golden cases into `folder`; returns what `unpack_golden` needs to read them."""
    arrays = [array for case in golden for array in (*case.inputs, *case.outputs)]
    return {
        "arrays": write_arrays(folder / "golden.bin", arrays),
        "cases": [[len(case.inputs), len(case.outputs), case.spread, list(case.shares)] for case in golden],
    }


def unpack_golden(answer: Any, folder: Path) -> tuple[GoldenCase, ...]:
    """Golden cases that a worker wrote, in memory."""
    arrays = iter([np.array(array) for array in take_arrays(folder / "golden.bin", answer["arrays"])])
    return tuple(
        GoldenCase(
            tuple(next(arrays) for _ in range(inputs)),
            tuple(next(arrays) for _ in range(outputs)),
            float(spread),
            shares=tuple(None if share is None else float(share) for share in shares),
        )
        for inputs, outputs, spread, shares in answer["cases"]
    )


def pack_module(module: tvm.IRModule, folder: Path) -> dict[str, Any]:
    """Write a module; the weights of `main` lie beside it and are not turned into text."""
    lifting = _LiftedConstants()
    main = lifting.visit_expr(module["main"])
    lifted = relax.Function(
        [*main.params, *lifting.variables], main.body, main.ret_ty, main.is_pure, main.attrs
    )
    functions = {module.get_global_var("main"): lifted, **others(module)}
    text = tvm.ir.save_json(tvm.IRModule(functions, attrs=module.attrs))
    (folder / "module.json").write_text(text)
    return {"weights": write_arrays(folder / "weights.bin", (_array(c.value) for c in lifting.constants))}


def unpack_module(answer: Any, folder: Path) -> tvm.IRModule:
    """The module that a worker wrote, its weights bound.

    Raises:
        ModelFileError: what it wrote is no such module.
    """
    try:
        with open_plain(folder / "module.json") as stream:
            size = os.fstat(stream.fileno()).st_size
            text = stream.read(min(size, _MODULE_BYTES))
    except OSError as error:
        raise ModelFileError("the answer of the import is damaged (no module)") from error
    if size > _MODULE_BYTES:
        raise ModelFileError("the answer of the import is damaged (a module of over 1 GB)")
    weights = take_arrays(folder / "weights.bin", answer["weights"])
    try:
        module = tvm.ir.load_json(text.decode())
        bound = {f"{_WEIGHT}{number}": _tensor(array) for number, array in enumerate(weights)}
        if bound:
            module = relax.transform.BindParams("main", bound)(module)
        check_functions(module)
    except Exception as error:  # TVM raises a wide tree of its own
        raise ModelFileError("the answer of the import is damaged (a module)") from error
    return module


def _array(tensor: Any) -> np.ndarray:
    """A tensor of TVM as an array, of the same memory where NumPy can read it."""
    return np.from_dlpack(tensor) if str(tensor.dtype) in _SHARED else tensor.numpy()


def _tensor(array: np.ndarray) -> Any:
    """An array as a tensor of TVM: of the same memory, so that weights of a file stay pages of the file."""
    if array.dtype.name in _SHARED and array.size:
        return tvm.runtime.from_dlpack(np.asarray(array))
    return tvm.runtime.tensor(array)


@mutator
class _LiftedConstants(PyExprMutator):  # type: ignore[misc]  # TVM has no types
    """Large constants become parameters, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: list[relax.Var] = []
        self.constants: list[Any] = []
        self._known: dict[int, relax.Var] = {}

    def visit_generic_const_(self, constant: Any) -> relax.Expr:
        """A parameter for a large tensor."""
        data = constant.value
        if not isinstance(data, tvm.runtime.Tensor) or int(np.prod(data.shape)) <= _APART_ELEMENTS:
            return constant
        key = hash(constant)  # the address of what `constants` keeps alive
        if key not in self._known:
            self._known[key] = relax.Var(f"{_WEIGHT}{len(self.variables)}", constant.ty)
            self.variables.append(self._known[key])
            self.constants.append(constant)
        return self._known[key]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError
    return value


def _pack_spec(spec: TensorSpec) -> list[Any]:
    return [spec.name, list(spec.shape), spec.dtype]


def _unpack_spec(entry: Any) -> TensorSpec:
    name, shape, dtype = entry
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError
    return TensorSpec(str(name), tuple(shape), str(dtype))


def kept(made: Path, folder: Path, original: Path, digest: str) -> Path:
    """The file that the original runtime gets: the model itself, or what the worker wrote, in the cache.

    What lies in the cache under that name is replaced: it may be of a worker that was not itself.
    """
    if made == original.resolve():
        return made
    place = made.parent.resolve()
    if not place.is_relative_to(folder):
        raise ValueError
    target = work_file(digest, f"{original.stem}{original.suffix}").parent
    for file in place.iterdir():
        if file.is_symlink() or not file.is_file():
            raise ValueError
        partial = target / f"moving-{file.name}"
        shutil.move(file, partial)
        # Where it lies now, the worker cannot put anything else in its place.
        if partial.is_symlink() or not partial.is_file():
            raise ValueError
        partial.replace(target / file.name)
    return target / made.name
