"""The host: importers, lowering, construction, building, measuring and deploying."""

from __future__ import annotations

from device_agent.contract.quiet import silence

# Before any library that the host imports, or a process that it starts, has the time to report.
silence()
