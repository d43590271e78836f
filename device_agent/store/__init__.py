"""What the agent keeps on disk: its folder, uploads, bundles, and bundles opened after all checks."""
