"""How hosts, the daemon and its executors talk: frames, and listeners that admit whoever knows a secret."""
