"""Programs of one task in one row: what is known of the task is read once for all of them.

Six programs of 20 tokens after a prompt of 60 are 180 tokens in one row instead of 480 in six. A program
sees the prompt and itself, at the positions that it would have alone, so that the losses are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from host.tlm.language.vocabulary import Vocabulary, quality_token
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.training.example import Example

# How much less a program counts that takes twice as long: 2^-4.
_EMPHASIS = 4
# Lengths of batches are multiples of this.
_LENGTHS = 64


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
        mask: (rows, 1, longest, longest), true where a token is seen.
        rows, columns: (targets,) the position before each token that is to be learned.
        targets: (targets,) those tokens.
        samples: (targets,) the number of the sample that each belongs to, among all that were packed.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    targets: torch.Tensor
    samples: torch.Tensor

    def log_probabilities(self, model: LanguageModel) -> torch.Tensor:
        """(targets,) natural logarithm of the probability of each token that is to be learned."""
        hidden = model.hidden(self.tokens, self.positions, self.mask)
        logits = model.logits(hidden[self.rows, self.columns])
        return -torch.nn.functional.cross_entropy(logits.float(), self.targets, reduction="none")


class Rows:
    """Samples in rows on a device.

    All rows of a training are made once; a batch takes some of them without a loop over tokens.

    Args:
        groups: the samples of each row, at least one, all with the same prompt.
        padding: token number where a row has ended.
        device: where the tensors are.
    """

    def __init__(self, groups: Sequence[Sequence[Sample]], padding: int, device: torch.device) -> None:
        texts: list[list[int]] = []
        segments: list[list[int]] = []
        positions: list[list[int]] = []
        # The number of the sample that segment 1 of a row is; the others follow.
        first: list[int] = []
        number = 0
        for group in groups:
            prompt = group[0].prompt
            texts.append(list(prompt))
            segments.append([0] * len(prompt))
            positions.append(list(range(len(prompt))))
            first.append(number)
            for segment, sample in enumerate(group, start=1):
                text = [sample.context[-1], *sample.target]
                texts[-1] += text
                segments[-1] += [segment] * len(text)
                positions[-1] += range(len(prompt), len(prompt) + len(text))
            number += len(group)
        longest = max(map(len, texts))

        def table(rows: list[list[int]], filling: int) -> torch.Tensor:
            filled = [row + [filling] * (longest - len(row)) for row in rows]
            return torch.tensor(filled, dtype=torch.int16, device=device)

        self._tokens, self._positions = table(texts, padding), table(positions, 0)
        self._segments = table(segments, -1)
        self._first = torch.tensor(first, device=device)
        self._lengths = [len(text) for text in texts]
        self._device = device

    def __len__(self) -> int:
        return len(self._lengths)

    def take(self, numbers: Sequence[int]) -> Packed:
        """The rows of these numbers, hardly longer than the longest of them."""
        longest = max(self._lengths[number] for number in numbers)
        # A GPU compiles and plans for each length that it meets first, so that there should be few.
        longest = min(self._tokens.shape[1], -(-longest // _LENGTHS) * _LENGTHS)
        chosen = torch.tensor(numbers, device=self._device)
        tokens = self._tokens[chosen, :longest].long()
        segments = self._segments[chosen, :longest].long()
        before = torch.ones(longest, longest, dtype=torch.bool, device=self._device).tril()
        own = segments[:, :, None] == segments[:, None, :]
        visible = before & (own | (segments[:, None, :] == 0))
        # The token behind another one of the same program is learned.
        learned = (segments[:, :-1] > 0) & (segments[:, :-1] == segments[:, 1:])
        rows, columns = learned.nonzero(as_tuple=True)
        return Packed(
            tokens=tokens,
            positions=self._positions[chosen, :longest].long(),
            mask=visible[:, None],
            rows=rows,
            columns=columns,
            targets=tokens[rows, columns + 1],
            samples=self._first[chosen][rows] + segments[rows, columns] - 1,
        )


def pack(samples: Sequence[Sample], padding: int, device: torch.device) -> Packed:
    """All samples in rows, those that follow one another with the same prompt in one."""
    groups = [list(group) for _, group in itertools.groupby(samples, lambda sample: sample.prompt)]
    rows = Rows(groups, padding, device)
    return rows.take(range(len(rows)))
