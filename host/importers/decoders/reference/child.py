"""The process of the reference: `python -m host.importers.decoders.reference.child FOLDER`."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.execute.memory.free_memory import free_bytes
from host.importers.decoders.folder import read_folder
from host.importers.decoders.gguf.model import read_gguf
from host.importers.decoders.reference.judgement import ATTENTION, BETWEEN, CACHE, Asked, Judgement, judged
from host.importers.decoders.reference.model import make_model, parameter_named
from host.importers.decoders.reference.questions import (
    ERROR,
    Answers,
    Plan,
    read_plan,
    write_answers,
)
from host.importers.decoders.reference.rounding import as_bytes, as_halves, as_they_are
from host.importers.decoders.reference.side_by_side import Way, moved_by_halves, moved_by_ways
from host.importers.decoders.reference.stored import StoredPart
from host.language_file import language_format

# Of weights that stay in memory from text to text, where the bundle is much smaller than they are.
_KEPT_BYTES = 1 << 29
# Of the memory that is free, the share that weights may take where a text is continued token by token.
_KEPT_SHARE = 0.5
# Ways of rounding in one batch: each has two rows of every text.
_WAYS = 3


def run(directory: Path) -> int:
    """Compute the outputs in the reference process; returns its exit status."""
    try:
        write_answers(directory, computed(read_plan(directory)))
    except Exception as failure:  # noqa: BLE001  # whatever transformers raises is reported to the parent
        message = {"message": f"{type(failure).__name__}: {failure}"}
        (directory / ERROR).write_text(json.dumps(message))
        return 1
    return 0


def computed(plan: Plan) -> Answers:
    """The answers to all questions.

    Raises:
        ValueError: transformers does not know the model, or has not the same weights.
        ModelFileError: a weight cannot be used.
        OSError: a file cannot be read.
    """
    asked, path = plan.questions, plan.path
    read = read_gguf(path) if language_format(path) == "gguf" else read_folder(path)
    parts = {one.matrix.name: one for one in plan.parts}
    if asked.measured:
        model = make_model(read, {}, kept=_KEPT_BYTES)
        return Answers((), measured=energies(model, [one.tolist() for one in asked.texts], asked.measured))
    # A bundle in floats is as large as the weights here, one of quantised weights is much smaller.
    kept = _KEPT_BYTES if parts or read.bits else sys.maxsize
    changed = bool(parts or asked.halves or asked.cached)
    text = None if asked.text is None else asked.text.tolist()
    last = asked.texts[-1].tolist()
    original = before = None
    if changed and not read.bits and (text is not None or asked.halves):
        plain = make_model(read, {}, kept=kept)
        original = None if text is None else logits_of(plain, text)
        before = logits_of(plain, last) if asked.halves else None
        del plain
        # Its modules and their hooks refer to each other.
        gc.collect()
    model = make_model(read, parts, halves=asked.halves, kept=kept_bytes(kept, asked.count))
    # Before the first run: a tied head whose weight stays in memory is no longer found by its embedding.
    products = [] if asked.judged is None else multiplied_by(model, parts)
    cache = rounded_cache if asked.cached else empty_cache
    logits = tuple(logits_of(model, tokens.tolist(), cache) for tokens in asked.texts)
    behind = None if text is None else logits_of(model, text, cache)
    greedy = () if text is None else continued(model, text[: asked.prompt], asked.count, cache)
    judgement = None
    if asked.judged is not None:
        judgement = judgement_of(model, asked.judged, products, cached=asked.cached)
    return Answers(
        logits,
        behind,
        original if changed or read.bits else behind,
        greedy,
        0.0 if before is None else float(np.abs(before - logits[-1]).max() / np.abs(before).max()),
        judgement=judgement,
    )


def kept_bytes(least: int, steps: int) -> int:
    """Bytes of weights that stay in memory.

    Each step of a continuation would read and dequantise all others again. Without one there are few passes,
    and making a bundle is to take little memory.

    Args:
        least: that stay in any case.
        steps: of the continuation; 0 for none.
    """
    free = free_bytes() if steps else None
    return least if free is None else max(least, int(_KEPT_SHARE * free))


def empty_cache(model: Any) -> Any:
    """A cache of transformers, in float32."""
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


def rounded_cache(model: Any) -> Any:
    """A cache that holds keys and values as bytes hold them, in float32."""
    from transformers import DynamicCache

    class Rounded(DynamicCache):  # type: ignore[misc]
        def update(self, keys: Any, values: Any, *others: Any, **named: Any) -> Any:
            return super().update(as_bytes(keys), as_bytes(values), *others, **named)

    return Rounded(config=model.config)


def continued(
    model: Any, prompt: Sequence[int], count: int, made_cache: Callable[[Any], Any] = empty_cache
) -> tuple[int, ...]:
    """The likeliest token each time, whatever the model's own settings of a generation say."""
    import torch

    made: list[int] = []
    given, cache = list(prompt), made_cache(model)
    with torch.inference_mode():
        while len(made) < count:
            result = model(input_ids=torch.tensor([given]), past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            given = [int(result.logits[0, -1].argmax())]
            made += given
    return tuple(made)


def logits_of(
    model: Any, tokens: Sequence[int], made_cache: Callable[[Any], Any] | None = None
) -> np.ndarray:
    """The logits (n, V) float32 after each of the tokens of one text; a cache may round keys and values."""
    import torch

    cache = None if made_cache is None else made_cache(model)
    with torch.inference_mode():
        made = model(
            input_ids=torch.tensor([list(tokens)]), past_key_values=cache, use_cache=cache is not None
        ).logits
    return np.asarray(made[0].float().numpy())


def energies(model: Any, texts: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The mean squares (K) float32 of what products are given in texts, by the names of their weights.

    A table of an embedding stands for the head that has the same parameter, and is left out where none has.
    """
    import torch

    sums: dict[str, torch.Tensor] = {}

    def hook(name: str) -> Any:
        def add(_: Any, given: tuple[torch.Tensor, ...]) -> None:
            squares = given[0].double().square().sum(dim=tuple(range(given[0].dim() - 1)))
            sums[name] = squares + sums[name] if name in sums else squares

        return add

    for name in names:
        module = multiplying(model, name)
        if module is not None:
            module.register_forward_pre_hook(hook(name))
    for tokens in texts:
        logits_of(model, tokens)
    count = sum(map(len, texts))
    return {name: (one / count).float().numpy() for name, one in sums.items()}


def multiplied_by(model: Any, parts: Mapping[str, StoredPart]) -> list[tuple[Any, StoredPart]]:
    """The modules that multiply by weights, each with its own.

    A head may have a weight of its own although the configuration ties it to the embedding: it comes behind.
    """
    found = {}
    for name, part in parts.items():
        module = multiplying(model, name)
        if module is not None:
            found[id(module)] = module, part
    return list(found.values())


def multiplying(model: Any, name: str) -> Any:
    """The module that multiplies by a weight of the files; None for an embedding that is no head.

    Raises:
        ValueError: the model has no such weight.
    """
    import torch

    parameters = dict(model.named_parameters(remove_duplicate=False))
    key = parameter_named(parameters, name)
    module = model.get_submodule(key.rpartition(".")[0])
    if not isinstance(module, torch.nn.Embedding):
        return module
    head = model.get_output_embeddings()
    return head if head is not None and head.weight is parameters[key] else None


def judgement_of(
    model: Any, asked: Asked, products: Sequence[tuple[Any, StoredPart]], *, cached: bool
) -> Judgement:
    """What a program with quantised weights may round.

    Args:
        model: of transformers, with these weights.
        asked: what there is to be rounded.
        products: all modules that multiply by quantised weights, each with its weight.
        cached: whether the cache has bytes, of the exact logits too.
    """
    exact = as_bytes if cached else as_they_are

    def way(chosen: Collection[int]) -> Way:
        parts = [asked.parts[one] for one in chosen]
        kinds = {one.kind for one in parts}
        names = frozenset(name for one in parts for name in one.products)
        return Way(names, ATTENTION in kinds, as_halves if CACHE in kinds else exact)

    def moved_by(sets: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        if any(one.kind == BETWEEN for one in asked.parts):
            return [moved_by_halves(model, asked.texts, bool(one), asked.half_sums) for one in sets]
        ways = [way(one) for one in sets]
        # What is to be decided is computed of all texts, what is compared of the random and the repeated one.
        texts = asked.texts if len(sets) == 1 else asked.texts[::2]
        return [
            one
            for begin in range(0, len(ways), _WAYS)
            for one in moved_by_ways(
                model, texts, ways[begin : begin + _WAYS], products, tiles=asked.tiles, cached=exact
            )
        ]

    return judged(asked.parts, asked.allowed, moved_by)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
