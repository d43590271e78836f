"""Assertions of a torch program, which say of numbers what was found true when it was exported.

They have no results. What is computed for them alone, often from numbers of Python that depend on tensors
(`sym_ite`), goes with them.
"""

from __future__ import annotations

from torch import fx

_ASSERTIONS = frozenset(
    (
        *("_assert_async.default", "_assert_async.msg", "_assert_scalar.default"),
        *("sym_constrain_range.default", "sym_constrain_range_for_size.default"),
    )
)


def leave_out(graph: fx.Graph) -> None:
    """Remove assertions, and what nothing else reads.

    Args:
        graph: of a program; it is changed.
    """
    only_asserted: set[fx.Node] = set()
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or node.users:
            continue
        if getattr(node.target, "__name__", "") in _ASSERTIONS or node in only_asserted:
            only_asserted.update(node.all_input_nodes)
            graph.erase_node(node)
