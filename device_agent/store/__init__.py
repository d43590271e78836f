"""The agent's files on disk: its folder, uploads and bundles, and how bundles are checked and opened."""
