"""Connections of hosts, daemon and executors: frames, and listeners that admit clients with a secret."""
