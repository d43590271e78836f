"""The tasks of a bundle, read back from its `tasks.json` in a process of their own."""
