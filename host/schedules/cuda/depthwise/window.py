"""A convolution of each channel by itself as the rule sees it, read off its workload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from host.schedules.cuda.image_windows import ImageWindows, windows_of
from host.schedules.cuda.sources import Source, neighbours, source_of
from host.schedules.workload import Access, Workload

# By the type of the sums, types of the image and of the weights.
_TYPES = {
    "float32": (("float16",), ("float16",)),
    "int32": (("int8", "uint8"), ("int8",)),
}
# Fewer bytes of neighbouring channels are not worth a thread.
_LEAST_BYTES = 4
# Taps that one dot product adds up.
DOT = 4


@dataclass(frozen=True)
class Window(ImageWindows):
    """A convolution of each channel by itself; its weights have neighbouring channels side by side too.

    Attributes:
        image_position: of the image among the anchor's reads.
        fill: what stands around the image.
        weights: the argument that the weights lie in.
    """

    image_position: int
    fill: int
    weights: Access

    @property
    def bytes(self) -> bool:
        """Whether bytes are multiplied; else halves are."""
        return self.weights.element_bytes == 1


@lru_cache(maxsize=256)
def window_of(workload: Workload) -> Window | None:
    """The convolution that a workload is, or None if it is none of each channel by itself.

    Halves or bytes, with neighbouring channels side by side in memory; one or two directions with a window.
    """
    anchor = workload.anchor_stage
    if not anchor.plain or workload.steps or len(anchor.reads) != 2 or anchor.write.type.name not in _TYPES:
        return None
    sources = [source_of(workload, access) for access in anchor.reads]
    for position in range(2):
        image, weights = sources[position], sources[1 - position]
        if image is None or weights is None:
            return None
        if not weights.bordered and not image.stored and not weights.stored:
            found = _window(workload, image, weights.access, position)
            if found is not None:
                return found
    return None


def _window(workload: Workload, image: Source, weights: Access, position: int) -> Window | None:
    anchor = workload.anchor_stage
    images, kinds = _TYPES[anchor.write.type.name]
    if image.access.type.name not in images or weights.type.name not in kinds or not anchor.spatial:
        return None
    *others, channel = anchor.spatial
    if weights.offset(channel, 1) != 1 or any(move.moved for axis in others for move in weights.moves[axis]):
        return None
    found = windows_of(workload, image.access, image.bordered, neighbours(anchor, weights, channel))
    if found is None or found.width * image.access.element_bytes < _LEAST_BYTES:
        return None
    return Window(**vars(found), image_position=position, fill=image.fill, weights=weights)
