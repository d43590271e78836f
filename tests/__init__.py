"""Tests and benchmarks; what they import themselves reports no more than what the product imports."""

from __future__ import annotations

from device_agent.contract.quiet import silence

silence()
