"""What surrounds deployments: devices, keys, records, the language model, and what this host has."""
