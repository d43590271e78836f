"""The benchmark of the agent runs a real agent, a session and a bundle."""

from __future__ import annotations

from benchmarks.agent import LIMITS, measure


def test_the_benchmark_of_the_agent_has_all_of_its_figures() -> None:
    figures = measure(0.1)
    assert set(LIMITS) <= set(figures)
    assert min(figures["daemon_bytes"], figures["executor_bytes"]) > 1e6
