"""How well a bundle on a device continues a text of the user's, beside transformers in float32."""

from __future__ import annotations

import math

import numpy as np

from host.compare.verification import Runs
from host.errors import VerifyError
from host.model.text_quality import TextQuality, TextReference, log_probabilities

# Whose exponential a number of double precision holds.
_MOST_NATS = 709.0


def judge_text(session: Runs, reference: TextReference) -> TextQuality:
    """Run the text through the step, a token at a time, and continue its beginning.

    Args:
        session: with the bundle loaded.
        reference: what transformers makes of the text.

    Raises:
        VerifyError: the bundle's logits are not finite, or are not the vocabulary's.
        DeviceError: the device or its executor went away.
        EngineError: the engine refused the model.
    """
    divergence = known = baseline = 0.0
    agreed, places = 0, len(reference.tokens)
    for place, token in enumerate(reference.tokens):
        logits = _step(session, int(token), place, reference.logits.shape[1])
        found, wanted = log_probabilities(logits), log_probabilities(reference.logits[place])
        divergence += float((np.exp(wanted) * (wanted - found)).sum())
        agreed += int(found.argmax() == wanted.argmax())
        if place + 1 < places:
            following = int(reference.tokens[place + 1])
            known, baseline = known - found[following], baseline - wanted[following]
    return TextQuality(
        places,
        reference.baseline,
        _perplexity(known / (places - 1)),
        _perplexity(baseline / (places - 1)),
        divergence / places,
        reference.weights_divergence,
        agreed / places,
        len(reference.greedy),
        _greedy_equal(session, reference),
    )


def _perplexity(nats: float) -> float:
    """Of a mean negative log-likelihood; infinite where no number is large enough."""
    return math.exp(nats) if nats < _MOST_NATS else math.inf


def _greedy_equal(session: Runs, reference: TextReference) -> int:
    """Leading tokens of the continuation that the bundle writes too."""
    vocabulary = reference.logits.shape[1]
    for place in range(reference.prompt):
        logits = _step(session, int(reference.tokens[place]), place, vocabulary)
    for made, wanted in enumerate(reference.greedy):
        if int(logits.argmax()) != wanted:
            return made
        if made + 1 < len(reference.greedy):
            logits = _step(session, wanted, reference.prompt + made, vocabulary)
    return len(reference.greedy)


def _step(session: Runs, token: int, place: int, vocabulary: int) -> np.ndarray:
    outputs = session.run((np.array([token], np.int32), np.array([place], np.int32)))
    if len(outputs) != 1 or outputs[0].shape != (1, vocabulary) or not np.isfinite(outputs[0]).all():
        raise VerifyError(
            f"the text: the logits behind token {place + 1} are not those of {vocabulary} tokens, or not "
            "finite: leave --text out, and report it with the model"
        )
    return np.asarray(outputs[0][0])
