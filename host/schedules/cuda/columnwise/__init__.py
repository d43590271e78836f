"""Reductions along columns, on a GPU: many positions become one number for each channel."""
