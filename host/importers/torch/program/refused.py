"""Operators of torch programs that no compiled model can have, and what to do about each."""

from __future__ import annotations

import torch
from torch import fx

_DROPOUT = frozenset(
    (
        "_fused_dropout",
        "alpha_dropout",
        "dropout",
        "feature_alpha_dropout",
        "feature_dropout",
        "native_dropout",
    )
)
_RANDOM = frozenset(
    (
        *("_sample_dirichlet", "_standard_gamma", "bernoulli", "binomial", "cauchy", "exponential"),
        *("geometric", "log_normal", "multinomial", "normal", "normal_functional", "poisson", "rand"),
        *("rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "random", "uniform"),
    )
)


def reason(node: fx.Node) -> str | None:
    """Why an operator is refused, in one line with the next step; None if nothing is known against it.

    Args:
        node: a call of an operator in a program whose inputs have fixed shapes.
    """
    name = str(getattr(node.target, "__name__", node.target))
    kind = name.partition(".")[0].rstrip("_")
    if kind in _DROPOUT and _drops(node):
        return f"operator {name}: the model is in training: export it after eval()"
    if kind in _RANDOM:
        return f"operator {name} draws random numbers, which a compiled model does not: give them as an input"
    made = node.meta.get("val")
    values = made if isinstance(made, tuple | list) else [made]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(not isinstance(size, int) for tensor in tensors for size in tensor.shape):
        return (
            f"operator {name}: the shape of its result depends on the values of an input: write it with "
            "results of a fixed shape, such as those of torch.where, topk and nonzero_static"
        )
    return None


def _drops(node: fx.Node) -> bool:
    """Whether a dropout is one of training, with a probability that is not 0."""
    probability, training = (*node.args[1:3], None, None)[:2]
    return bool(probability) and training is not False
