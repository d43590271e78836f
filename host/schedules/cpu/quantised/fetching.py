"""Fetches the weights of a later group while those of a group are read, a line beside each load."""

from __future__ import annotations

from host.lowering.quantised.layout import WeightLayout

LINE_BYTES = 64


def fetches(layout: WeightLayout, panels: int) -> bool:
    """Whether the intrinsic of all rows and both planes fetches weights ahead, a line beside each load.

    All lines of a group in a row, before its loads or behind them, are slower: a core of a Xeon reads 14 GB/s
    then, and 16 where they take turns. Of panels side by side, the next group does not follow the last one.
    """
    return layout.instruction == "u8s8" and layout.planes == 2 and panels == 1


def fetched(layout: WeightLayout, vector: int, ahead: int) -> list[str]:
    """TVMScript that fetches the line at which a vector of a later group begins, if one begins there.

    Args:
        layout: of the weight.
        vector: of the group.
        ahead: groups; those of a panel, and panels, follow one another.
    """
    if vector * layout.lanes * layout.width % LINE_BYTES:
        return []
    address = f"T.address_of(weight[{vector + ahead * layout.vectors}, 0, 0])"
    # For reading, into the second level, as data.
    hints = "T.int32(0), T.int32(2), T.int32(1)"
    name = 'T.llvm_lookup_intrinsic_id("llvm.prefetch.p0")'
    return [f'T.evaluate(T.call_llvm_intrin({name}, {address}, {hints}, dtype="void"))']
