"""Servers that tests start on this machine."""
