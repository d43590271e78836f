"""What installed packages add to the product, by entry points such as `edgetlm.proposers`.

A package is code of the user's own choice and runs with all that the user may do. What it adds is checked for
being what it says, so that a mistake in a package is one line that names the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from host.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["proposers", "rules", "operators", "transports", "engines"]
PREFIX = "edgetlm."


@dataclass(frozen=True)
class Extension:
    """An entry point of an installed package.

    Attributes:
        kind: what it is.
        name: by which the command line knows it.
        entry: of the package's metadata.
    """

    kind: Kind
    name: str
    entry: EntryPoint

    @property
    def title(self) -> str:
        """The name of the extension in messages: kind, name, package and entry point."""
        package = self.entry.dist.name if self.entry.dist is not None else "an installed package"
        return f"{self.kind[:-1]} {self.name} of {package} ({self.entry.value})"

    def load(self, fits: Callable[[Any], bool], what: str) -> Any:
        """The object that the entry point names.

        Args:
            fits: whether an object is what it should be.
            what: it should be, for the message.

        Raises:
            UserError: it cannot be imported, or is something else.
        """
        try:
            found = self.entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UserError(f"{self.title} does not load ({reason}); mend or remove that package") from error
        if not fits(found):
            raise UserError(f"{self.title} is no {what}; mend or remove that package")
        return found


def extensions(kind: Kind, taken: tuple[str, ...] = ()) -> dict[str, Extension]:
    """The extensions of a kind by name, in order of their names; nothing is imported yet.

    Args:
        kind: what is looked for.
        taken: names that the product itself has.

    Raises:
        UserError: two packages, or a package and the product, use one name.
    """
    # Only what names an extension looks for one.
    from importlib.metadata import entry_points

    found: dict[str, Extension] = {}
    for entry in sorted(entry_points(group=PREFIX + kind), key=lambda one: (one.name, one.value)):
        extension = Extension(kind, entry.name, entry)
        known = found.get(entry.name)
        if known is not None and known.entry.value == entry.value:
            # The same package twice on the path, as where it is installed in two places.
            continue
        if known is not None or entry.name in taken:
            other = known.title if known is not None else "the product itself"
            raise UserError(f"{extension.title} has the name of {other}; remove one of the packages")
        found[entry.name] = extension
    return found
