"""Operators that ONNX Runtime adds to the standard, replaced by standard ones.

Its optimiser of transformers, its quantisation (format QOperator) and its export of language models write
them (domain `com.microsoft`, documented in ONNX Runtime's `docs/ContribOperators.md`). The modules of this
package are listed: one that has `EXPANSIONS` adds its operators.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import onnx
from onnx import NodeProto

from host.importers.bounds import check_count
from host.importers.onnx.contributed.body import Body, Expansion, KnownTypes, LaterError
from host.importers.onnx.contributed.quantised import STANDARD_EXPANSIONS

DOMAIN = "com.microsoft"
# The standard's version for a file that uses none of its operators.
_STANDARD_VERSION = 17


@cache
def expansions() -> Mapping[str, Expansion]:
    """What replaces each operator, by its name."""
    found: dict[str, Expansion] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        loaded = importlib.import_module(f"{__package__}.{module.name}")
        found.update(getattr(loaded, "EXPANSIONS", {}))
    return found


def expand_contributed(name: str, model: onnx.ModelProto, *, sums_in_reals: bool = False) -> bool:
    """Replace contributed operators of the graph by standard ones; true if any was.

    An operator stays where the type of one of its inputs is not known.

    Args:
        name: of the file, for messages.
        model: changed in place; types that the inference of shapes found are read.
        sums_in_reals: whether products of quantised tensors in standard operators are replaced too, so that
            their sums are taken of real numbers.

    Raises:
        ImportFailed: a form of an operator that the standard has no operators for.
        ModelFileError: the graph becomes larger than a model may be.
    """
    table = dict(expansions(), **(STANDARD_EXPANSIONS if sums_in_reals else {}))
    if not any(_is_replaced(node, table) for node in model.graph.node):
        return False
    if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("", _STANDARD_VERSION))
    types = KnownTypes(model)
    nodes: list[NodeProto] = []
    for position, node in enumerate(model.graph.node):
        body = Body(node, types, f"{node.op_type}_{position}/", keeps_packed=not sums_in_reals)
        made = _expanded(node, body, table)
        for one in made:
            types.add(one)
        nodes += made
        check_count(name, len(nodes))
    model.graph.value_info.extend(types.declared)
    if all(made is given for made, given in zip(nodes, model.graph.node, strict=False)):
        return bool(types.declared)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def rounds_inside(model: onnx.ModelProto) -> bool:
    """Whether an operator of the graph is several operators of real numbers with roundings in between."""
    table = dict(expansions(), **STANDARD_EXPANSIONS)
    return any(_is_replaced(node, table) for node in model.graph.node)


def _is_replaced(node: NodeProto, table: Mapping[str, Expansion]) -> bool:
    if node.op_type not in table:
        return False
    # ONNX Runtime writes this norm in the standard's domain.
    standard = node.op_type in STANDARD_EXPANSIONS or node.op_type == "SimplifiedLayerNormalization"
    return node.domain == DOMAIN or (standard and node.domain in ("", "ai.onnx"))


def _expanded(node: NodeProto, body: Body, table: Mapping[str, Expansion]) -> list[NodeProto]:
    """The nodes that replace one; itself if it is none to replace, or if not enough is known of it yet."""
    if not _is_replaced(node, table):
        return [node]
    try:
        table[node.op_type](body)
    except LaterError:
        return [node]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise body.fail("its inputs or attributes are none of this operator's") from error
    return body.nodes
