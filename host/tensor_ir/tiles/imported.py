"""Puts the functions that a body calls by their names into its module."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.structural import mapped
from host.tensor_ir.tiles.attention import SCORES_PREFIX, SUMS_PREFIX, ScoreTiles, SumTiles
from host.tensor_ir.tiles.gated import GATED_PREFIX, GatedPanels
from host.tensor_ir.tiles.lines import CONFIGURED, DECLARED
from host.tensor_ir.tiles.quantised import PANELS_PREFIX, ROWS_PREFIX, QuantisedPanels, TiledRows
from host.tensor_ir.tiles.registers import RELEASED

# What writes a function's text, by how its name begins; the numbers behind that are its fields.
_KINDS = {
    ROWS_PREFIX: TiledRows,
    PANELS_PREFIX: QuantisedPanels,
    GATED_PREFIX: GatedPanels,
    SCORES_PREFIX: ScoreTiles,
    SUMS_PREFIX: SumTiles,
}


def with_tile_functions(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body with the functions of this package that it calls; itself if it calls none."""
    used: dict[str, str] = {}

    def visit(call: Any) -> Any:
        first = call.args[0] if len(call.args) else None
        name = str(first.value) if isinstance(first, tvm.ir.StringImm) else ""
        for prefix, kind in _KINDS.items():
            if name.startswith(prefix):
                used[name] = kind(*map(int, name.removeprefix(prefix).split("_"))).text()
        return call

    mapped(body, (tvm.ir.Call, visit))
    if not used:
        return body
    texts = [DECLARED, CONFIGURED.text, RELEASED.text, *(used[name] for name in sorted(used))]
    text = tvm.ir.StringImm("\n".join(texts))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, body)
