"""Brings a file of examples up to the present rules: `python -m research.pretraining.kit.renew OLD NEW`.

OLD and NEW are folders with examples (`sdk tlm pretrain --out`). Those of rules whose version has changed,
and of the rules that `--rules` names, are made again; the others are taken over. An interrupted run goes on.
What is drawn for an example stays the same, so that NEW is what a new folder with the same seed would be, as
far as no other estimate has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary, rule_token
from research.pretraining.boards import training_boards
from research.pretraining.dataset import Dataset, make_example
from research.pretraining.sentences import read_sentences
from research.pretraining.teacher import Teacher
from research.pretraining.training import SENTENCES


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m research.pretraining.kit.renew", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rules", nargs="*", default=[], help="whose estimates have changed")
    given = parser.parse_args(arguments)
    vocabulary = Vocabulary()
    path = given.old / SENTENCES
    old = read_sentences(path.read_text(), path, vocabulary)
    present = rule_versions()
    changed = {name for name, version in old.rules.items() if present.get(name) != version}
    stale = {vocabulary.number(rule_token(name)) for name in changed.union(given.rules)}
    new = Dataset(given.new / SENTENCES, old.seed, vocabulary)
    boards, count = training_boards(), 0
    for example in old.examples[len(new.examples) :]:
        if not stale.isdisjoint(example.prompt):
            example = make_example(old.seed, example.index, boards, Teacher(), vocabulary)
            count += 1
        new.add(example)
    print(f"{given.new}: {len(new.examples)} examples, {count} of them made again")


if __name__ == "__main__":
    main()
