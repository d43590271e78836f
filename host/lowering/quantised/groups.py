"""TVMScript of what groups and blocks of quantised weights have: scales, multipliers, zeros, minima."""

from __future__ import annotations

from dataclasses import dataclass

from host.lowering.graph import Node
from host.lowering.quantised.layout import MINIMUM, ZERO, WeightLayout

SCALES = "factors"
_TYPES = {"multipliers": "int8", "zeros": "int8", "minima": "float16", "minimum_multipliers": "int8"}


@dataclass(frozen=True)
class GroupTexts:
    """Texts for one weight.

    Attributes:
        layout: of the weight.
        panels, groups: of it.
        blocks: that a row has scales for.
        scales: their type.
    """

    layout: WeightLayout
    panels: int
    groups: int
    blocks: int
    scales: str

    @classmethod
    def of(cls, node: Node) -> GroupTexts:
        """Of a packed operation, whose inputs are data, weight, scales, and then `layout.further`."""
        (panels, groups), blocks = node.inputs[1].shape[:2], node.inputs[2].shape[1]
        assert groups % blocks == 0, "blocks of whole groups"
        return cls(node.attrs["layout"], panels, groups, blocks, node.inputs[2].dtype)

    @property
    def parameters(self) -> str:
        """The parameters of the function behind its weight."""
        kinds = {SCALES: self.scales, **{name: _TYPES[name] for name in self.layout.further}}
        return "".join(
            f'    {name}: T.Buffer(({self.panels}, {self._extent(name)}, {self.layout.lanes}), "{kind}"),\n'
            for name, kind in kinds.items()
        )

    def scale(self, panel: str, group: str, lane: str) -> str:
        """The scale of a group, float32; a product with a multiplier is exact."""
        made = f'T.cast({self._one(SCALES, panel, group, lane)}, "float32")'
        if not self.layout.multiplied:
            return made
        return f'{made} * T.cast({self._one("multipliers", panel, group, lane)}, "float32")'

    def zero(self, panel: str, group: str, lane: str) -> str:
        """The zero point of a group, int32; nothing where the weight has none."""
        if self.layout.asymmetry != ZERO:
            return ""
        return f'T.cast({self._one("zeros", panel, group, lane)}, "int32")'

    def minimum(self, panel: str, group: str, lane: str) -> str:
        """What is added to the scaled numbers of a group, float32; nothing without minima."""
        if self.layout.asymmetry != MINIMUM:
            return ""
        made = f'T.cast({self._one("minima", panel, group, lane)}, "float32")'
        if not self.layout.multiplied:
            return made
        return f'{made} * T.cast({self._one("minimum_multipliers", panel, group, lane)}, "float32")'

    def _extent(self, name: str) -> int:
        return self.groups if name.endswith("multipliers") else self.blocks

    def _one(self, name: str, panel: str, group: str, lane: str) -> str:
        ratio = self.groups // self._extent(name)
        place = group if ratio == 1 else f"{group} // {ratio}"
        return f"{name}[{panel}, {place}, {lane}]"
