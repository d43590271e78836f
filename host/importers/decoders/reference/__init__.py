"""Logits of a language model in float32, by transformers, with few of its weights in memory."""

from host.importers.decoders.reference.process import reference_answers, reference_logits
from host.importers.decoders.reference.questions import Answers, Questions

__all__ = ["Answers", "Questions", "reference_answers", "reference_logits"]
