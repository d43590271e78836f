"""Imports in a worker process that can be lost: the parent, the child, and what passes between them."""
