"""Loops over the steps of a recurrent layer."""
