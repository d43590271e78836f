"""The most memory that a compiled model may take on its device: `--memory-cap`, and what the device has."""

from __future__ import annotations

from device_agent.contract.text import printable
from host.errors import BuildError
from host.manifest import MemoryPart
from host.model import MemoryUse


def require_within(memory: MemoryUse, cap_bytes: int) -> None:
    """Refuse a model that takes more than is allowed.

    Args:
        memory: that it takes.
        cap_bytes: the most that it may take; 0 for no limit.

    Raises:
        BuildError: it takes more, or how much it takes is not known.
    """
    if not cap_bytes:
        return
    if memory.workspace_bytes is None:
        raise BuildError("--memory-cap: what the kernels take depends on the length; give --shape one")
    if memory.peak_bytes > cap_bytes:
        raise BuildError(
            f"--memory-cap {size_text(cap_bytes)}: the model takes {described(memory)}: allow that, use "
            "fewer --threads, --dtype fp16, a smaller --shape, or a smaller model"
        )


def require_fits(memory: MemoryUse, device: str, bytes_there: int) -> None:
    """Refuse a model that takes more than a device has, before it is sent there.

    Args:
        memory: that it takes.
        device: its name.
        bytes_there: that the device has; 0 where that is not known.

    Raises:
        BuildError: it takes more.
    """
    if 0 < bytes_there < memory.peak_bytes:
        raise BuildError(
            f"the model takes {described(memory)}, {printable(device)} has {size_text(bytes_there)}: "
            "use --quantize int4 or a smaller --context for a language model, else --dtype fp16, or a "
            "smaller model"
        )


def described(memory: MemoryUse | MemoryPart) -> str:
    """The peak and its parts, for people."""
    parts = [("weights", memory.weights_bytes), ("activations", memory.activations_bytes)]
    if memory.workspace_bytes is not None:
        parts.append(("workspaces", memory.workspace_bytes))
    listed = ", ".join(f"{name} {size_text(size)}" for name, size in parts)
    return f"{size_text(memory.peak_bytes)} at its peak ({listed})"


def size_text(size: int) -> str:
    """Bytes in the units of `--memory-cap`, which are powers of 1024: small models are not 0.0 of them."""
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 / 10 else f"{size / 2**10:.3g} KiB"
