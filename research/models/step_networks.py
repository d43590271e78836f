"""Models whose products have one row or a few: decoders written out over their steps, small policies.

An exporter writes a loop of known length as a copy of its body for each step, and all copies read the same
weights.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from research.models.zoo_model import ZooModel

_ONNX = ("onnx",)


class SpeechDecoder(nn.Module):
    """Steps of a decoder of mel spectrograms: location-sensitive attention between two LSTM cells.

    The sizes are about half of those of Tacotron 2 (Shen et al., ICASSP 2018).

    Args:
        steps: that are written out.
        width: of the encoder's vectors, and units of each cell.
        bands: of the spectrogram.
    """

    def __init__(self, steps: int = 8, width: int = 256, bands: int = 80) -> None:
        super().__init__()
        self.steps, self.width, self.bands = steps, width, bands
        self.narrow = nn.Sequential(nn.Linear(bands, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.attending, self.speaking = nn.LSTMCell(128 + width, width), nn.LSTMCell(2 * width, width)
        self.query, self.key = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.location = nn.Conv1d(2, 16, 15, padding=7)
        self.place, self.score = nn.Linear(16, 64, bias=False), nn.Linear(64, 1, bias=False)
        self.frame, self.stop = nn.Linear(2 * width, bands), nn.Linear(2 * width, 1)

    def forward(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Memory (N, T, width) to frames (N, steps, bands) and scores of the end (N, steps)."""
        rows, length, _ = memory.shape
        zeros = memory.new_zeros(rows, self.width)
        attending, speaking, context = (zeros, zeros), (zeros, zeros), zeros
        weights = total = memory.new_zeros(rows, length)
        frame, keys = memory.new_zeros(rows, self.bands), self.key(memory)
        frames, stops = [], []
        for _ in range(self.steps):
            attending = self.attending(torch.cat([self.narrow(frame), context], 1), attending)
            places = self.place(self.location(torch.stack([weights, total], 1)).transpose(1, 2))
            query = self.query(attending[0])[:, None]
            weights = torch.softmax(self.score(torch.tanh(query + keys + places))[..., 0], 1)
            total = total + weights
            context = torch.bmm(weights[:, None], memory)[:, 0]
            speaking = self.speaking(torch.cat([attending[0], context], 1), speaking)
            found = torch.cat([speaking[0], context], 1)
            frame = self.frame(found)
            frames.append(frame)
            stops.append(self.stop(found))
        return torch.stack(frames, 1), torch.cat(stops, 1)


class GreedyDecoder(nn.Module):
    """A GRU cell with attention to a text; each step takes the best token of the step before.

    Args:
        tokens: of the vocabulary.
        width: units of the cell, and of the text's vectors.
        steps: that are written out.
    """

    def __init__(self, tokens: int = 300, width: int = 192, steps: int = 10) -> None:
        super().__init__()
        self.steps, self.scale = steps, width**-0.5
        self.embedding, self.cell = nn.Embedding(tokens, width), nn.GRUCell(2 * width, width)
        self.scores = nn.Linear(2 * width, tokens)

    def forward(self, text: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Text (N, T, width) and state (N, width) to scores (N, steps, tokens) and the last state."""
        token = torch.zeros(text.shape[0], dtype=torch.long)
        context, found = text.mean(1), []
        for _ in range(self.steps):
            state = self.cell(torch.cat([self.embedding(token), context], 1), state)
            weights = torch.softmax((text @ state[:, :, None])[..., 0] * self.scale, 1)
            context = (weights[:, None] @ text)[:, 0]
            found.append(self.scores(torch.cat([state, context], 1)))
            token = found[-1].argmax(1)
        return torch.stack(found, 1), state


class BeamSearch(nn.Module):
    """Some hypotheses of a GRU cell, of which each step keeps the best continuations.

    Args:
        tokens: of the vocabulary.
        width: units of the cell.
        steps: that are written out.
        kept: hypotheses.
    """

    begin: torch.Tensor

    def __init__(self, tokens: int = 200, width: int = 128, steps: int = 6, kept: int = 4) -> None:
        super().__init__()
        self.tokens, self.steps, self.kept = tokens, steps, kept
        self.embedding, self.cell = nn.Embedding(tokens, width), nn.GRUCell(width, width)
        self.scores = nn.Linear(width, tokens)
        self.register_buffer("begin", torch.tensor([0.0, *[-1e4] * (kept - 1)]))

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """State (1, width) to the tokens of all steps (steps, kept) and the scores (kept)."""
        state, best = state.expand(self.kept, -1), self.begin
        token, found = torch.zeros(self.kept, dtype=torch.long), []
        for _ in range(self.steps):
            state = self.cell(self.embedding(token), state)
            scores = functional.log_softmax(self.scores(state), -1) + best[:, None]
            best, places = scores.flatten().topk(self.kept)
            token, state = places % self.tokens, state[places // self.tokens]
            found.append(token)
        return torch.stack(found), best


class Transducer(nn.Module):
    """One step of a speech transducer: two LSTM cells read a token, and the joint network a frame.

    Args:
        tokens: of the vocabulary.
        width: units of each cell.
        joint: units of the joint network.
    """

    def __init__(self, tokens: int = 512, width: int = 320, joint: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.lower, self.upper = nn.LSTMCell(width, width), nn.LSTMCell(width, width)
        self.predicted, self.heard = nn.Linear(width, joint), nn.Linear(joint, joint)
        self.scores = nn.Linear(joint, tokens)

    def forward(
        self,
        token: torch.Tensor,
        frame: torch.Tensor,
        hidden1: torch.Tensor,
        memory1: torch.Tensor,
        hidden2: torch.Tensor,
        memory2: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Token (N), frame (N, joint) and four states (N, width) to scores and the next states."""
        lower = self.lower(self.embedding(token), (hidden1, memory1))
        upper = self.upper(lower[0], (hidden2, memory2))
        joined = torch.tanh(self.predicted(upper[0]) + self.heard(frame))
        return (self.scores(joined), *lower, *upper)


class ActorCritic(nn.Module):
    """The mean of an action and the value of a state, each by two layers of 64 units.

    Args:
        observed, acted: numbers of an observation, and of an action.
        units: of a layer.
    """

    def __init__(self, observed: int = 17, acted: int = 6, units: int = 64) -> None:
        super().__init__()

        def layers(results: int) -> nn.Module:
            first, second = nn.Linear(observed, units), nn.Linear(units, units)
            return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(units, results))

        self.actor, self.critic = layers(acted), layers(1)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Observations (N, observed) to actions (N, acted) and values (N, 1)."""
        return torch.tanh(self.actor(observation)), self.critic(observation)


class ClickPredictor(nn.Module):
    """Embeddings and numbers of one visit, their products in pairs, and two small networks.

    As of Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
    2019.

    Args:
        tables: rows of each embedding.
        width: of the embeddings.
        numbers: of a visit.
    """

    def __init__(
        self,
        tables: tuple[int, ...] = (1000, 500, 2000, 300, 100, 5000, 50, 800),
        width: int = 16,
        numbers: int = 13,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(rows, width) for rows in tables])
        self.lower = nn.Sequential(
            nn.Linear(numbers, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU()
        )
        self.pairs = torch.tril_indices(len(tables) + 1, len(tables) + 1, -1)
        pairs = self.pairs.shape[1]
        self.upper = nn.Sequential(
            nn.Linear(width + pairs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Numbers (N, numbers) and rows of the tables (N, tables) to the probability (N, 1)."""
        lower = self.lower(numbers)
        vectors = torch.stack([lower, *(table(rows[:, i]) for i, table in enumerate(self.embeddings))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.upper(torch.cat([lower, products], 1)))


_STATES = ("hidden1", "memory1", "hidden2", "memory2")

STEP_MODELS: dict[str, ZooModel] = {
    "speech-decoder": ZooModel(
        SpeechDecoder, lambda: (torch.randn(1, 60, 256),), ("memory",), ("frames", "ends"), _ONNX
    ),
    "greedy-decoder": ZooModel(
        GreedyDecoder,
        lambda: (torch.randn(1, 40, 192), torch.randn(1, 192)),
        ("text", "state"),
        ("scores", "last"),
        _ONNX,
    ),
    "beam-search": ZooModel(
        BeamSearch, lambda: (torch.randn(1, 128),), ("state",), ("tokens", "scores"), _ONNX
    ),
    "transducer": ZooModel(
        Transducer,
        lambda: (torch.randint(0, 512, (1,)), torch.randn(1, 256), *(torch.randn(1, 320) for _ in _STATES)),
        ("token", "frame", *_STATES),
        ("scores", *(f"next_{name}" for name in _STATES)),
        _ONNX,
    ),
    "actor-critic": ZooModel(
        ActorCritic, lambda: (torch.randn(1, 17),), ("observation",), ("action", "value"), _ONNX
    ),
    "click-predictor": ZooModel(
        ClickPredictor,
        lambda: (torch.randn(1, 13), torch.randint(0, 50, (1, 8))),
        ("numbers", "rows"),
        ("probability",),
        _ONNX,
    ),
}
