"""An exported torch program as a relax module, by TVM's frontend and converters of ours."""

from __future__ import annotations

import re
import warnings

import torch
import tvm
from tvm.relax.frontend.torch import from_exported_program

from host.errors import ImportFailed


def convert_program(program: torch.export.ExportedProgram) -> tvm.IRModule:
    """Build `main` of a program whose shapes are numbers, weights bound as constants.

    Raises:
        ImportFailed: an operator that relax cannot express.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside torch and TVM
            return from_exported_program(program, unwrap_unit_return_tuple=True)
    except Exception as error:  # the frontend asserts, raises and forwards C++ errors
        message = " ".join(str(error).split()) or type(error).__name__
        operator = _operator(message)
        what = f"operator {operator}" if operator else "the program"
        raise ImportFailed(f"{what} cannot be converted: {message[:200]}", operator) from error


def _operator(message: str) -> str | None:
    """The operator that a message of the frontend is about."""
    found = re.search(r"Unsupported function types? \[?'?([\w.]+)", message)
    return found.group(1) if found else None
