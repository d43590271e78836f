"""Torch programs before conversion: operators refused, loops written out, constants and types made known."""
