"""What the passes decide, as decisions that a plan may make instead.

A pass asks `take` at each place where it chooses between forms of the same result. Without a plan it gets its
own choice back, so that a model without a plan is lowered as the passes see fit; all that was asked is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from device_agent.contract.text import printable
from host.errors import LoweringError
from host.lowering.graph import Node
from host.lowering.sharing.made_once import MadeOnce
from host.model import Layer, Site

# Parts of a site's name: records bound the whole.
_LAYER_CHARACTERS = 120


class Choices:
    """The decisions of one lowering.

    Args:
        decisions: of a plan, by the name of the site; sites that are not named keep what the pass takes.

    Attributes:
        types: numeric types of layers that were decided (`passes.halves.choose_types`).
        packed: weights that lie as the processor wants them, for all functions of the model.
    """

    def __init__(self, decisions: Mapping[str, int] | None = None) -> None:
        self._decisions = dict(decisions or {})
        self._sites: dict[str, Site] = {}
        self.types: dict[Layer, int] = {}
        self.packed = MadeOnce()

    @property
    def sites(self) -> tuple[Site, ...]:
        """What was asked so far, in its order."""
        return tuple(self._sites.values())

    def fresh(self) -> Choices:
        """The same decisions, of which nothing was asked yet: for a pass that looks ahead."""
        made = Choices(self._decisions)
        made.types, made.packed = dict(self.types), self.packed
        return made

    def take(self, kind: str, node: Node, options: Sequence[int], own: int, alike: str) -> int:
        """The value that is taken at a node.

        Args:
            kind: of the decision.
            node: where it is made; its first layer names the site.
            options: the values that are possible there, `own` among them.
            own: what the pass takes without a plan.
            alike: equal for nodes of which the same is asked: shapes and types.

        Raises:
            LoweringError: the plan names a value that is not possible there.
        """
        name = self._name(kind, node)
        taken = self._decisions.get(name, own)
        if taken not in options:
            raise LoweringError(
                f"The plan decides {name} = {taken}, which is none of {', '.join(map(str, options))}; "
                "make the plan again."
            )
        self._sites[name] = Site(name, kind, tuple(options), own, taken, f"{kind} {alike}")
        return taken

    def _name(self, kind: str, node: Node) -> str:
        where = printable(node.layers[0].name, _LAYER_CHARACTERS) if node.layers else node.op
        first = name = f"{kind} of {where}"
        count = 1
        while name in self._sites:
            count += 1
            name = f"{first} ({count})"
        return name
