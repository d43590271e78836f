"""Devices for who has no board: programs of another architecture under qemu's user mode, and whole machines.

What runs there is right or wrong as on a board. How long it takes says nothing of one: emulated devices are
marked as such, and instructions are counted in place of time.
"""
