"""A library whose import takes longer than an answer may."""

from __future__ import annotations

import time

_END = time.process_time() + 1.5
while time.process_time() < _END:
    pass
