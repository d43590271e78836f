"""A board of known truth: models run on this machine, time, power and heat are a simulation's.

The agent's own code measures it, unchanged: its sensors read files of a simulated /sys, and its clock is the
simulation's, so that ten seconds of measuring energy take as long as computing them. Never sent to boards.
"""
