"""A config.json: typed and bounded fields, and refusals of what is not implemented, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.contract.fields import Fields
from device_agent.contract.text import printable
from host.errors import ImportFailed, ModelFileError

# Larger than any decoder of today by a factor; a small file is not to make much work.
MAX_LAYERS = 512
MAX_HIDDEN = 1 << 16
MAX_HEADS = 1024
MAX_HEAD_SIZE = 1024
MAX_INTERMEDIATE = 1 << 20
MAX_VOCABULARY = 1 << 22
MAX_POSITIONS = 1 << 27

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


class Config(Fields):
    """Fields of the object.

    Args:
        folder: that it is of, or text that says where the object is, for messages.
        values: the object.
        advice: what makes a file with the right fields.
    """

    def __init__(
        self,
        folder: Path | str,
        values: Mapping[str, Any],
        advice: str = "save the model again with save_pretrained",
    ) -> None:
        name = folder if isinstance(folder, str) else f"{folder.name or folder}: config.json"
        self.where = name
        super().__init__(
            values,
            lambda text: ModelFileError(f"{self.where}: {text}: {advice}"),
        )

    def unsupported(self, what: str) -> ImportFailed:
        """The error for something that the compiler does not implement."""
        shown = printable(what, 200)
        return ImportFailed(f"{self.where}: {shown} is not supported: give a model without it", shown)

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a field with another value than those that change nothing.

        Raises:
            ImportFailed: it has one.
        """
        value = self.values.get(name)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            raise self.unsupported(f"{name} {value!r}")

    def activation(self, name: str, standard: str) -> str:
        """The activation by the name that the compiler knows.

        Raises:
            ImportFailed: it is another one.
        """
        value = self.text(name, standard=standard)
        if value not in _ACTIVATIONS:
            raise self.unsupported(f"{name} {value!r}")
        return _ACTIVATIONS[value]

    def whole_or(self, name: str, most: int, standard: int) -> int:
        """A size from 1 on; `standard` where the field is absent or null."""
        return self.whole(name, 1, most, standard)
