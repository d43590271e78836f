"""The machine that the agent runs on: description, clocks, temperatures, throttling, vendor's programs."""
