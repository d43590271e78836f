"""TLM: a language model that reads a board and a task and writes the decisions of a program."""

from __future__ import annotations
