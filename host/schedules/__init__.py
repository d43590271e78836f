"""The decisions of a task's schedule: analysis, design spaces and the rules that make them."""

from __future__ import annotations

from host.schedules.api import Decision
from host.schedules.design import DesignSpace, scheduled_function
from host.schedules.families import space_for

__all__ = ["Decision", "DesignSpace", "scheduled_function", "space_for"]
