"""Plans of whole models: what is decided across operators, with its estimate, proposers and records."""
