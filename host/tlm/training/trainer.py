"""The parts that pre-training and fine-tuning share: one step, and a state from which training continues."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from host.errors import TlmError
from host.tlm.language.vocabulary import PAD, Vocabulary, rule_token
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.training.packing import Packed, Rows, Sample, pack

_LARGEST_GRADIENT = 1.0
# Batches in a row whose gradient is no number, after which training is given up.
_MOST_SKIPPED = 20


@dataclass(frozen=True)
class Schedule:
    """How large the steps are.

    Attributes:
        steps: in all.
        learning_rate: largest; it rises over `warm_up` steps and falls to zero as a cosine.
        warm_up: steps.
    """

    steps: int
    learning_rate: float
    warm_up: int

    def rate(self, step: int) -> float:
        """Learning rate of a step."""
        if step < self.warm_up:
            return self.learning_rate * ((step + 1) / self.warm_up)
        rest = max(1, self.steps - self.warm_up)
        return self.learning_rate * (0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - self.warm_up) / rest))))


def device_of_training() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of which batches are taken, with the weights of their samples."""

    rows: Rows
    weights: torch.Tensor


class Trainer:
    """A network with its optimiser.

    Args:
        model: the network; it is moved to the GPU where there is one.
        vocabulary: of the sentences.
        schedule: how large the steps are.
        key: what a state has to have in common with this training to go on from it.

    Attributes:
        key: the same.
        step: batches trained on.
        recent_loss: running mean of the loss.
        withheld_loss: of the last state on disk.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        schedule: Schedule,
        key: Mapping[str, Any],
    ) -> None:
        self._device = device_of_training()
        self._schedule = schedule
        self.key = dict(key)
        self._padding = vocabulary.number(PAD)
        self.model = model.to(self._device)
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=schedule.learning_rate,
            weight_decay=0.01,
            fused=self._device.type == "cuda",
        )
        self.step = 0
        self.recent_loss = math.nan
        self.withheld_loss = math.nan
        self._skipped = 0
        self._seen = torch.zeros(len(vocabulary), dtype=torch.bool, device=self._device)

    @property
    def seen(self) -> set[int]:
        """Numbers of the tokens that were trained on."""
        return set(self._seen.nonzero().flatten().tolist()) - {self._padding}

    def rows(self, tasks: Sequence[Sequence[Sample]]) -> TrainingRows:
        """The samples of tasks that many batches are taken of, a row each, where the network is."""
        weights = self._weights([sample for samples in tasks for sample in samples])
        return TrainingRows(Rows(tasks, self._padding, self._device), weights)

    def train(self, samples: Sequence[Sample]) -> None:
        """Take one step of the optimiser on a batch, with the gradient clipped; none if it is not finite."""
        self.train_on(pack(samples, self._padding, self._device), self._weights(samples))

    def train_on(self, packed: Packed, weights: torch.Tensor) -> None:
        """Take one step on a batch that is packed; `weights` are those of all samples that were packed.

        A batch whose gradient is no number changes nothing.

        Raises:
            TlmError: many of them in a row.
        """
        for group in self._optimiser.param_groups:
            group["lr"] = self._schedule.rate(self.step)
        self.model.train()
        loss = self._loss(packed, weights)
        self._optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), _LARGEST_GRADIENT)
        self.step += 1
        if not math.isfinite(float(norm)):
            self._skip()
            return
        self._skipped = 0
        self._optimiser.step()
        value = float(loss.detach())
        self.recent_loss = value if math.isnan(self.recent_loss) else 0.98 * self.recent_loss + 0.02 * value
        self._seen[packed.tokens] = True

    def _skip(self) -> None:
        """Leave a batch out whose gradient overflows: one such step would make every weight NaN."""
        self._skipped += 1
        if self._skipped >= _MOST_SKIPPED:
            raise TlmError(
                f"training diverges: the gradients of {self._skipped} batches in a row are no numbers"
                f" (until step {self.step}); train again with a smaller learning rate"
            )

    def loss(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Mean over the tokens of the decisions by their samples' weights; what is known is not learned."""
        return self._loss(pack(samples, self._padding, self._device), self._weights(samples))

    def _loss(self, packed: Packed, weights: torch.Tensor) -> torch.Tensor:
        own = weights[packed.samples]
        # Sums of products in bfloat16 where a GPU has units for them; weights and optimiser stay as they are.
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            found = packed.log_probabilities(self.model)
        return -(own * found).sum() / own.sum()

    def _weights(self, samples: Sequence[Sample]) -> torch.Tensor:
        return torch.tensor([sample.weight for sample in samples], device=self._device)

    def loss_of(self, samples: Sequence[Sample], batch: int) -> float:
        """Mean loss over samples, without learning.

        Args:
            samples: any number.
            batch: how many at once; the mean is of the batches' means by their sizes.
        """
        self.model.eval()
        total = 0.0
        with torch.inference_mode():
            for start in range(0, len(samples), batch):
                part = samples[start : start + batch]
                total += float(self.loss(part)) * len(part)
        return total / len(samples)

    def state(self) -> bytes:
        """The state of the training as bytes: weights, optimiser and step, from which `restore` continues."""
        buffer = io.BytesIO()
        torch.save(
            {
                "key": self.key,
                "step": self.step,
                "recent_loss": self.recent_loss,
                "withheld_loss": self.withheld_loss,
                "seen": sorted(self.seen),
                "model": self.model.state_dict(),
                "optimiser": self._optimiser.state_dict(),
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, content: bytes, path: Path | str) -> None:
        """Continues from a state.

        Args:
            content: of the state.
            path: where it was read, for messages.

        Raises:
            TlmError: it is damaged, or of another training.
        """
        try:
            state = torch.load(io.BytesIO(content), map_location=self._device, weights_only=True)
            key = state["key"]
            if key == self.key:
                self.model.load_state_dict(state["model"])
                self._optimiser.load_state_dict(state["optimiser"])
                self.step = int(state["step"])
                self.recent_loss, self.withheld_loss = state["recent_loss"], state["withheld_loss"]
                self._seen[torch.tensor(state["seen"], dtype=torch.long)] = True
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise TlmError(
                f"{path} is damaged ({type(error).__name__}: {first}); remove it to train from the start"
            ) from error
        if key != self.key:
            raise TlmError(f"{path}: a training with {key}, not {self.key}; choose another folder")


def trained_rules(seen: Set[int], vocabulary: Vocabulary, versions: Mapping[str, int]) -> dict[str, int]:
    """The versions of the rules whose programs were trained on, by name.

    Args:
        seen: numbers of the tokens that were trained on.
        vocabulary: of the numbers.
        versions: of all rules when the programs were made.
    """
    tokens = set(vocabulary.decode(sorted(seen)))
    return {name: version for name, version in versions.items() if rule_token(name) in tokens}


def log_probabilities(
    model: LanguageModel, samples: Sequence[Sample], padding: int, batch: int
) -> list[float]:
    """Natural logarithm of the probability of each program, after what is known of it."""
    model.eval()
    found: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(samples), batch):
            part = samples[start : start + batch]
            packed = pack(part, padding, model.device)
            totals = torch.zeros(len(part), device=model.device)
            found += totals.index_add(0, packed.samples, packed.log_probabilities(model)).tolist()
    return found
