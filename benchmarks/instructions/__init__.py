"""Executed instructions and modelled cycles of small operators on boards that are not here."""
