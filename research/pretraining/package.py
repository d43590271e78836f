"""The weights that the product ships: a checkpoint, a sample of its data, and a card that describes both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2

from host.errors import TlmError
from host.files import write_whole
from host.tlm.language import vocabulary as vocab
from host.tlm.language.sentence import decode
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, WEIGHTS, Card, read_weights
from host.tlm.training.example import Example
from host.tlm.training.replay import REPLAY, write_replay
from research.pretraining.dataset import Dataset
from research.pretraining.held_out import held_out_anchors, key_of_axes
from research.pretraining.training import SENTENCES

README, TEMPLATE = "README.md", "weights_card.md.j2"
_LARGEST_BYTES = 16_000_000
# The fields about the training that the card shows.
_HISTORY = (
    *("seed", "steps", "batch", "learning_rate"),
    *("tasks", "held_out", "programs", "loss", "withheld_loss"),
)
# Number of tasks in the sample, which takes about 200 KB.
REPLAYED = 3000


def package(folder: Path, out: Path, evaluation: Path | None = None, replayed: int = REPLAYED) -> Card:
    """Writes the folder that is shipped, from the folder of a pre-training.

    Args:
        folder: output folder of `sdk tlm pretrain`.
        out: folder of the product's weights; its files are replaced.
        evaluation: output of `sdk tlm evaluate --json`, which has the figures of the card.
        replayed: maximum number of tasks in the sample.

    Raises:
        TlmError: the checkpoint or the data is damaged, is of another version, is too large or contains
            held-out tasks; or `evaluation` is no such output.
    """
    vocabulary = Vocabulary()
    data, card = read_weights(folder, vocabulary)
    missing = [key for key in _HISTORY if key not in card.training]
    if missing:
        raise TlmError(
            f"{folder / CARD}: no pre-training's card, it lacks {', '.join(missing)}; train it again"
        )
    if card.base:
        raise TlmError(f"{folder}: a fine-tuned model belongs to one board; give a pre-training's folder")
    if len(data) > _LARGEST_BYTES:
        raise TlmError(
            f"{folder / WEIGHTS}: {len(data)} bytes, at most {_LARGEST_BYTES}; train a smaller one"
        )
    if not (folder / SENTENCES).is_file():
        raise TlmError(f"{folder / SENTENCES}: no such file; it is needed for the sample that is repeated")
    dataset = Dataset(folder / SENTENCES, int(card.training["seed"]), vocabulary)
    check_held_out(dataset.examples, vocabulary)
    baseline, rows, left_out = _evaluated(evaluation)
    out.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS, CARD):
        shutil.copyfile(folder / name, out / name)
    count = write_replay(out / REPLAY, dataset.examples, replayed, dataset.seed, vocabulary)
    text = _template().render(
        card=asdict(card),
        training=card.training,
        megabytes=len(data) / 1e6,
        parameters=len(data) / 2e6,
        examples=len(dataset.examples),
        replayed=count,
        held_out=sorted(held_out_anchors()),
        baseline=baseline,
        rows=rows,
        methods=sorted(
            {method for row in rows for method in row.ratios}, key=lambda one: (one != "tlm", one)
        ),
        left_out=left_out,
    )
    write_whole(out / README, text.encode())
    return card


def check_held_out(examples: Sequence[Example], vocabulary: Vocabulary) -> None:
    """Checks that no sentence is about a task that is kept for testing.

    Raises:
        TlmError: a sentence has the anchor of a held-out task.
    """
    anchors = {key: network for network, keys in held_out_anchors().items() for key in keys}
    end = [vocab.quality_token(0), vocab.END]
    for example in examples:
        if not example.programs:
            continue
        task = decode([*vocabulary.decode(example.prompt), *end]).task
        kind = next(stage.kind for stage in task.stages if stage.anchor)
        key = key_of_axes(kind, [(axis.extent, axis.reduce) for axis in task.axes])
        if key in anchors:
            raise TlmError(
                f"example {example.index} has the anchor of a task of {anchors[key]} ({key}), which is held "
                "out; train without it"
            )


@dataclass(frozen=True)
class _Row:
    """One line of the card's table: the speed of each method relative to the baseline."""

    network: str
    coverage: str
    budget: str
    ratios: Mapping[str, str]


def _evaluated(path: Path | None) -> tuple[str, list[_Row], list[str]]:
    """The name of the baseline, the rows of the table, and why some networks were not evaluated."""
    if path is None:
        return "", [], []
    rows, left_out = [], []
    try:
        content = json.loads(path.read_text())
        for name, network in sorted(content["networks"].items()):
            if "error" in network:
                left_out.append(f"{name}: {network['error']}")
                continue
            for budget, found in network["budgets"].items():
                # A method that has no program for one of the tasks has no ratio.
                ratios = {one: "-" if ratio is None else f"{ratio:.3f}" for one, ratio in found.items()}
                rows.append(_Row(name, f"{network['coverage']:.0%}", budget, ratios))
        return str(content["baseline"]), rows, left_out
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TlmError(
            f"{path}: not what `sdk tlm evaluate --json` writes ({type(error).__name__}: {error})"
        ) from error


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("research.pretraining", "."),
        undefined=jinja2.StrictUndefined,
        # The output is Markdown, and its values come from this project.
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE)
