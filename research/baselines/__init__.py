"""Searches of the held-out networks by MetaSchedule, and their results, one file a network."""
