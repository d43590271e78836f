"""What the agent keeps on disk: its folder, uploads and bundles; and how bundles are checked and opened."""
