"""Boards whose times are watched: what has drifted is found, and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from host.errors import UserError

if TYPE_CHECKING:
    from host.commands.watch import Watched, WatchOptions
    from host.progress import Progress


def device_names(texts: Sequence[str], engine: str) -> tuple[str, ...]:
    """The devices that names, `tag:NAME` and lists of these with commas mean, each once.

    Args:
        texts: as given.
        engine: of the command; see `host.deploy.board_group.device_names`.

    Raises:
        UnknownDeviceError: there is no such device.
        UserError: there is none at all.
    """
    from host.deploy.board_group import device_names as names_in

    found = tuple(dict.fromkeys(name for text in texts for name in names_in(text, engine)))
    if not found:
        raise UserError("no device to watch: name one, as in sdk watch pi5")
    return found


def watch(names: Sequence[str], options: WatchOptions, progress: Progress) -> tuple[Watched, ...]:
    """See `host.commands.watch.watch`."""
    from host.commands.watch import watch as watch_boards

    return watch_boards(names, options, progress)
