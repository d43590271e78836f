"""The agent of a device: daemon, executor, bundle store, runtime. Imports nothing of the host's."""
