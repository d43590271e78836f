"""Boards that are somebody else's."""

from tests.hostile_board import hostile_board

__all__ = ["hostile_board"]
