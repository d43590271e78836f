"""A TFLite model whose constants may lie behind the flat buffer, in the same file.

Writers put large constants there, and leave the place and the size in the constant's table. The package
`tflite` gives such tables as they are: without data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

# Places 0 and 1 mean that there is none.
_NONE = 1


class _Buffer(tflite.Buffer):  # type: ignore[misc]  # the package has no types
    """A constant's bytes, wherever they lie."""

    def _is_outside(self) -> bool:
        return bool(super().Offset() > _NONE)

    def DataAsNumpy(self) -> Any:  # noqa: N802
        """The bytes; 0 where there are none.

        Raises:
            ValueError: they lie beyond the file.
        """
        if not self._is_outside():
            return super().DataAsNumpy()
        begin, size = int(super().Offset()), int(super().Size())
        whole = self._tab.Bytes
        if begin + size > len(whole):
            raise ValueError(f"{size} bytes at {begin} of {len(whole)}")
        return np.frombuffer(whole, np.uint8, size, begin)

    def DataLength(self) -> int:  # noqa: N802
        """The number of bytes."""
        return int(super().Size() if self._is_outside() else super().DataLength())

    def DataIsNone(self) -> bool:  # noqa: N802
        """Whether there are no bytes."""
        return not self._is_outside() and bool(super().DataIsNone())


class WholeModel(tflite.Model):  # type: ignore[misc]  # the package has no types
    """The root of a file."""

    @classmethod
    def of(cls, data: bytes) -> WholeModel:
        """The model of a file's bytes."""
        made = cls()
        made.Init(data, int.from_bytes(data[:4], "little"))
        return made

    def Buffers(self, j: int) -> Any:  # noqa: N802
        """One of the constants; None where the file has none at all."""
        found = super().Buffers(j)
        if found is None:
            return None
        whole = _Buffer()
        whole.Init(found._tab.Bytes, found._tab.Pos)
        return whole
