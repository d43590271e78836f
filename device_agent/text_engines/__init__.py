"""Engines that continue texts, each in a process of its own that answers commands; one of them is ours."""
