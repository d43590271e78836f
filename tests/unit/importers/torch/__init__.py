"""Exported torch programs through the importer, beside torch."""
