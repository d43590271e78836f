"""Where lowering chooses between forms of a model: the sites of a plan."""

from __future__ import annotations

from dataclasses import dataclass

# The kind of decision about the numeric type of a layer, and its values: fp32, or half precision.
TYPE = "type"
SINGLE, HALF = 0, 1


@dataclass(frozen=True)
class Site:
    """One place of a model at which lowering decides.

    Attributes:
        name: unique in the model, and the same whatever is decided elsewhere: the kind and the layer of the
            model's file.
        kind: what is decided, for example "algorithm".
        options: the values that can be taken.
        own: the value that the pass takes by itself.
        taken: the value that was taken.
        alike: equal for sites of which the same is asked: their kind, shapes and types.
    """

    name: str
    kind: str
    options: tuple[int, ...]
    own: int
    taken: int
    alike: str
