"""Deploys models and compares each with the engines that its users have: latency, energy, memory."""
