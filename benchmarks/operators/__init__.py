"""Operators by every method: Gensor, its tree, MetaSchedule and the library, measured together."""
