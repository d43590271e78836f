"""The network: its checkpoints, which of them a device uses, and how it writes legal programs."""
