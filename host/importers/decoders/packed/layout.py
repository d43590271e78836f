"""How GPTQ and AWQ lay out a matrix: whole numbers in words of 32 bits, zero points and scales of groups.

A matrix of N outputs and K inputs, in groups of g inputs, has the values (number - zero) * scale:

    GPTQ  qweight (K / e, N), qzeros (K / g, N / e), scales (K / g, N) float16, g_idx (K)
    AWQ   qweight (K, N / e), qzeros (K / g, N / e), scales (K / g, N) float16

g_idx is the group of each input. e elements of b bits are a word, the first in its lowest bits; AWQ has its
elements in the order 0, 2, 4, 6, 1, 3, 5, 7. GPTQ's first format stores zero points less 1. Sources: Frantar
et al. 2023 (GPTQ), Lin et al. 2024 (AWQ); fields of `quantization_config` as transformers documents them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from device_agent.contract.text import printable
from host.errors import ImportFailed
from host.importers.decoders.config import Config
from host.importers.decoders.quantise import GROUP

FIELD = "quantization_config"
GPTQ, AWQ = "gptq", "awq"
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_MOST_GROUP = 1 << 16


@dataclass(frozen=True)
class PackedLayout:
    """The fields of `quantization_config`.

    Attributes:
        method: "gptq" or "awq".
        bits: of a number, 4 or 8; 4 of AWQ.
        group: inputs that share a scale, a multiple of 32; 0 for all.
        less: what stored zero points are less than the zero points.
    """

    method: str
    bits: int
    group: int
    less: int = 0

    @property
    def elements(self) -> int:
        """Elements of a 32-bit word."""
        return 32 // self.bits

    def groups(self, columns: int) -> int:
        """Groups with a scale of their own in a row of `columns` elements; 1 where a row has one scale."""
        return columns // self.group if self.group else 1

    def numbers(self, words: np.ndarray) -> np.ndarray:
        """The numbers (N, K) uint8 of `qweight` (int32)."""
        if self.method == AWQ:
            return self._along_columns(words).T
        return self._along_columns(words.T)

    def zeros(self, words: np.ndarray) -> np.ndarray:
        """The zero points (N, groups) int16 of `qzeros` (int32)."""
        return self._along_columns(words).T.astype(np.int16) + np.int16(self.less)

    def _along_columns(self, words: np.ndarray) -> np.ndarray:
        """Rows of words as rows of elements, uint8."""
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)
        split = (words.view(np.uint32)[..., None] >> shifts & np.uint32((1 << self.bits) - 1)).astype(
            np.uint8
        )
        if self.method == AWQ:
            # Element i of a word is column order[i]: column c is at the place where it stands.
            split = split[..., np.argsort(_AWQ_ORDER)]
        return split.reshape(words.shape[0], -1)


def read_layout(config: Config) -> PackedLayout | None:
    """The layout that a config.json names; None where its weights are not packed.

    Raises:
        ImportFailed: a way of quantising, or a form of one, that is not read.
        ModelFileError: a field is missing or out of range.
    """
    if not config.has(FIELD):
        return None
    values = config.values[FIELD]
    if not isinstance(values, dict):
        raise config.wrong(FIELD, "an object")
    fields = Config(f"{config.where}: {FIELD}", values)
    method = fields.text("quant_method", 40)
    if method not in (GPTQ, AWQ):
        raise ImportFailed(
            f"{config.where}: {FIELD} of {printable(method, 40)!r} is not read: give a model that is not "
            "quantised, or one of gptq or awq",
            FIELD,
        )
    fields.only("is_marlin_format", False)
    fields.only("pack_dtype", "int32")
    fields.only("dynamic", {})
    fields.only("bits", *((4, 8) if method == GPTQ else (4,)))
    bits = fields.whole("bits", 1, 32)
    group = 0 if values.get("group_size") == -1 else fields.whole("group_size", 1, _MOST_GROUP)
    if group % GROUP:
        raise fields.unsupported(f"group_size {group}, which is no multiple of {GROUP},")
    if method == AWQ:
        fields.only("version", "gemm")
        return PackedLayout(AWQ, bits, group)
    fields.only("checkpoint_format", "gptq", "gptq_v2")
    return PackedLayout(GPTQ, bits, group, 0 if values.get("checkpoint_format") == "gptq_v2" else 1)
