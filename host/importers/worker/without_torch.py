"""TVM without PyTorch, for a worker that reads files of other formats.

TVM's package imports PyTorch first where it is installed, which takes twice as long as all the rest, and
200 MB. What is imported here goes without; PyTorch can be imported later all the same.
"""

from __future__ import annotations

import sys

if "torch" not in sys.modules:
    # An entry of None is how an import is withheld.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm  # noqa: F401
    finally:
        del sys.modules["torch"]
