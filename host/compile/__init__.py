"""From an imported model to a bundle: programs chosen, built, linked, written."""
