"""Makes a training kit: `python -m research.pretraining.kit.prepare FOLDER KIT [--examples N]`.

FOLDER has, or gets, the examples as `sdk tlm pretrain --out FOLDER` makes them; what is missing up to N is
made, and an interrupted run goes on. Without `--examples` the kit has what is there. `--earlier FILE` adds
the examples that were shipped with earlier weights (`replay.jsonl.gz`), of rules that have not changed since.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from host.tlm.language.vocabulary import Vocabulary
from host.tlm.training.replay import read_replay
from research.pretraining.dataset import Dataset
from research.pretraining.kit.file import write_kit
from research.pretraining.teacher import Teacher
from research.pretraining.training import SENTENCES


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m research.pretraining.kit.prepare", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kit", type=Path)
    parser.add_argument("--examples", type=int, default=0)
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    vocabulary = Vocabulary()
    data = Dataset(given.folder / SENTENCES, given.seed, vocabulary)
    if given.examples > len(data.examples):
        for _ in data.grow(given.examples, Teacher(), given.jobs):
            pass
    text = data.path.read_text()
    earlier = read_replay(given.earlier, vocabulary) if given.earlier else []
    size = write_kit(given.kit, text[: text.rfind("\n") + 1], earlier)
    print(f"{given.kit}: {len(data.examples)} examples and {len(earlier)} earlier ones, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
