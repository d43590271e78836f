"""Names of a model's values as names that generated code can carry."""

from __future__ import annotations

import re


class Names:
    """Makes identifiers out of the names of a model; no identifier is made twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def fresh(self, name: str) -> str:
        """An identifier that resembles `name` and that this object has not given before."""
        base = re.sub(r"[^0-9a-zA-Z_]", "_", name)
        if not base or not (base[0].isalpha() or base[0] == "_"):
            base = f"value_{base}"
        candidate, count = base, 1
        while candidate in self._used:
            candidate, count = f"{base}_{count}", count + 1
        self._used.add(candidate)
        return candidate
