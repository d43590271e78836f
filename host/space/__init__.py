"""What can be decided about a task: analysis, design spaces and the rules that make them."""

from __future__ import annotations

from host.space.design import Decision, DesignSpace, scheduled_function
from host.space.rules import space_for

__all__ = ["Decision", "DesignSpace", "scheduled_function", "space_for"]
