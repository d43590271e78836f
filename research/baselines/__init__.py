"""MetaSchedule's searches of the held-out networks, and their results, one file for each network."""
