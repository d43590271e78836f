"""Programs that are written as text of TVMScript, in the place of a function's body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir

from host.lowering.script import function_of_script

_ROOT = "root"


def put_script(schedule: s_tir.Schedule, lines: Sequence[str], **names: Any) -> None:
    """Puts a program into the place of everything that a function does.

    It is no step of the trace: a replayed trace is the unscheduled function.

    Args:
        schedule: of the function.
        lines: of the program.
        names: what the program names, the function's buffers among them.
    """
    body = "\n".join("    " + line for line in lines)
    text = f"@T.prim_func(s_tir=True, private=True)\ndef function() -> None:\n{body}\n"
    new = function_of_script(text, standalone=False, **names).body.block
    root = schedule.get_sblock(_ROOT)
    old = schedule.get(root)
    block = s_tir.SBlock([], [], [], old.name_hint, new.body, None, new.alloc_buffers, [], old.annotations)
    schedule.state.replace(schedule.get_sref(root), block)
