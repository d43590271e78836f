"""Logits of a language model in float32, by transformers, with few of its weights in memory."""

from host.importers.decoders.reference.judgement import Asked, Judgement, Part
from host.importers.decoders.reference.process import input_energies, reference_answers, reference_logits
from host.importers.decoders.reference.questions import Answers, Questions

__all__ = [
    "Answers",
    "Asked",
    "Judgement",
    "Part",
    "Questions",
    "input_energies",
    "reference_answers",
    "reference_logits",
]
