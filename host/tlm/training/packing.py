"""Programs of one task in one row: what is known of the task is read once for all of them.

Six programs of 20 tokens after a prompt of 60 are 180 tokens in one row instead of 480 in six. A program
sees the prompt and itself, at the positions that it would have alone, so that the losses are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import GPT2LMHeadModel

from host.tlm.language.vocabulary import Vocabulary, quality_token
from host.tlm.training.example import Example

# How much less a program counts that takes twice as long: 2^-4.
_EMPHASIS = 4


@dataclass(frozen=True)
class Sample:
    """One program to learn.

    Attributes:
        context: token numbers before the decisions, the last of them the quality; not learned.
        target: token numbers of the decisions.
        weight: how much it counts beside others.
    """

    context: tuple[int, ...]
    target: tuple[int, ...]
    weight: float = 1.0

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens that programs of the same task on the same board share."""
        return self.context[:-1]


def samples_of(example: Example, vocabulary: Vocabulary, most: int | None = None) -> list[Sample]:
    """The programs of a task, each with how good it is; the faster, the more it counts.

    Args:
        example: the task; its programs are fastest first.
        vocabulary: of the token numbers.
        most: programs at most; None takes all.
    """
    programs = list(zip(example.programs, example.qualities, strict=True))[:most]
    return [
        Sample((*example.prompt, vocabulary.number(quality_token(quality))), decided, slower**-_EMPHASIS)
        for (decided, slower), quality in programs
    ]


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows of tokens, and the places in them that are learned.

    Attributes:
        tokens, positions: (rows, longest) token numbers and their positions in their sentence.
        mask: (rows, 1, longest, longest), 0 where a token is seen and very negative where not.
        rows, columns: (targets,) the position before each token that is to be learned.
        targets: (targets,) those tokens.
        samples: (targets,) the number of the sample that each belongs to.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    targets: torch.Tensor
    samples: torch.Tensor

    def log_probabilities(self, model: GPT2LMHeadModel) -> torch.Tensor:
        """(targets,) natural logarithm of the probability of each token that is to be learned."""
        seen = model.transformer(self.tokens, attention_mask=self.mask, position_ids=self.positions)
        logits = model.lm_head(seen.last_hidden_state[self.rows, self.columns])
        return -torch.nn.functional.cross_entropy(logits, self.targets, reduction="none")


def pack(samples: Sequence[Sample], padding: int, device: torch.device) -> Packed:
    """Samples in rows, those that follow one another with the same prompt in one.

    Args:
        samples: at least one.
        padding: token number where a row has ended.
        device: where the tensors are.
    """
    rows = _Rows()
    for number, sample in enumerate(samples):
        rows.add(number, sample, number > 0 and sample.prompt == samples[number - 1].prompt)
    longest = max(map(len, rows.tokens))
    segments = torch.tensor([row + [-1] * (longest - len(row)) for row in rows.segments], device=device)
    filled = [row + [padding] * (longest - len(row)) for row in rows.tokens]
    positions = [row + [0] * (longest - len(row)) for row in rows.positions]
    before = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    own = segments[:, :, None] == segments[:, None, :]
    visible = before & (own | (segments[:, None, :] == 0))
    mask = torch.zeros(visible.shape, device=device).masked_fill(~visible, torch.finfo(torch.float32).min)
    where = torch.tensor(rows.said, device=device)
    return Packed(
        tokens=torch.tensor(filled, device=device),
        positions=torch.tensor(positions, device=device),
        mask=mask[:, None],
        rows=where[:, 0],
        columns=where[:, 1],
        targets=where[:, 2],
        samples=where[:, 3],
    )


class _Rows:
    """Rows under construction: segment 0 is the prompt, the others are programs."""

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []
        self.positions: list[list[int]] = []
        self.segments: list[list[int]] = []
        # (row, column before the token, token, sample)
        self.said: list[tuple[int, int, int, int]] = []

    def add(self, number: int, sample: Sample, same_prompt: bool) -> None:
        """Puts a sample behind the last one of its prompt, or into a row of its own."""
        prompt = sample.prompt
        if not same_prompt:
            self.tokens.append(list(prompt))
            self.positions.append(list(range(len(prompt))))
            self.segments.append([0] * len(prompt))
        row, start = len(self.tokens) - 1, len(self.tokens[-1])
        text = [sample.context[-1], *sample.target]
        self.tokens[row] += text
        self.positions[row] += range(len(prompt), len(prompt) + len(text))
        self.segments[row] += [self.segments[row][-1] + 1] * len(text)
        self.said += [(row, start + at, token, number) for at, token in enumerate(sample.target)]
