"""Tokens a second where several texts are continued together, beside one text by steps.

Each number of texts is a bundle of its own, made with `--sequences`. Its process works in turn with the one
of a single text.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from host.compare.text_peers.figures import OURS, tokens_of
from host.compare.text_peers.process import OUR_ENGINE, EngineProcess, seconds_of
from host.compare.text_peers.rounds import DECODED, PAUSE_S, SHORT, turns
from host.statistics import paired_ratio

_SEED = 2_000_000


def several(
    bundles: Mapping[int, Path],
    single: EngineProcess,
    vocabulary: int,
    rounds: int,
    *,
    threads: int,
    context: int,
) -> dict[str, Any]:
    """Measure bundles for several texts.

    Args:
        bundles: by number of texts, two or more each.
        single: our engine with the bundle for one text, loaded.
        vocabulary: of the model.
        rounds: of measurements.
        threads: to compute with.
        context: tokens that each text has places for.

    Returns:
        By number of texts, one included: `decode_tokens_s_several`, of all texts together;
        `speedup_several`, to one text, with its bounds; `seconds_several` of each round.

    Raises:
        EngineError: an engine failed.
    """
    with ExitStack() as stack:
        engines = {"1": single}
        for count, bundle in bundles.items():
            name = f"{OURS}, {count} texts"
            engine = EngineProcess(name, OUR_ENGINE, threads)
            engines[str(count)] = stack.enter_context(engine)
            engine.ask("load", path=str(bundle), threads=threads, context=context)
        return figures(measure(engines, vocabulary, rounds))


def measure(engines: Mapping[str, EngineProcess], vocabulary: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round in which every text gets `DECODED` tokens behind `SHORT` of its own.

    Args:
        engines: by number of texts, loaded.
        vocabulary: of the model.
        rounds: of measurements.
    """
    texts = {
        count: [tokens_of(_SEED + text, SHORT, vocabulary) for text in range(int(count))] for count in engines
    }
    seconds: dict[str, list[float]] = {count: [] for count in engines}
    # The first round computes the prompts, and is not counted.
    for number in range(rounds + 1):
        for count, engine in turns(engines, number):
            if count == "1":
                answer = engine.ask("decode", tokens=texts[count][0], count=DECODED)
            else:
                answer = engine.ask("decode_many", texts=texts[count], count=DECODED)
            if number:
                seconds[count].append(seconds_of(engine.name, "decode", answer))
            time.sleep(PAUSE_S)
    return seconds


def figures(seconds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """See `several`; the seconds are those of each round, by number of texts."""
    speeds, gains = {}, {}
    for count, times in seconds.items():
        speeds[count] = int(count) * DECODED / statistics.median(times)
        if count != "1":
            one = [int(count) * value for value in seconds["1"]]
            gain = paired_ratio(one, list(times))
            gains[count] = [gain.value, gain.low, gain.high]
    return {
        "decode_tokens_s_several": speeds,
        "speedup_several": gains,
        "seconds_several": {count: list(times) for count, times in seconds.items()},
    }
