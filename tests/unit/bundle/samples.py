"""A small bundle, of which nothing runs."""

from __future__ import annotations

import numpy as np

from host.manifest import Draft, Origin, signature_part
from host.model import GoldenCase, Signature, TensorSpec
from host.options import Backend

SIGNATURE = Signature((TensorSpec("x", (2, 3), "float32"),), (TensorSpec("y", (2,), "int64"),))


PARAMETERS: tuple[np.ndarray, ...] = (
    np.arange(5, dtype=np.float32),
    np.array(7, dtype=np.int64),
    np.zeros((0, 3), dtype=np.float32),
    np.arange(12, dtype=np.float16).reshape(3, 4).T,
)


GOLDEN = tuple(
    GoldenCase(
        (np.full((2, 3), case, np.float32),),
        (np.array([case, -case]),),
        shares=((), (0.25,), (0.5,))[case],
    )
    for case in range(3)
)


def draft(backend: Backend = "tvm") -> Draft:
    return Draft(
        name="net",
        backend=backend,
        signature=signature_part(SIGNATURE),
        origin=Origin(name="net.onnx", format="onnx", content_hash="0" * 64),
        command="sdk deploy net.onnx",
    )
