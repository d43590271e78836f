"""Channels in another order: how shuffles are found, and how they are carried into constant weights."""
