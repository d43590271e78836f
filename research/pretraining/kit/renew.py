"""Brings a file of examples up to the present rules: `python -m research.pretraining.kit.renew OLD NEW`.

OLD and NEW are folders with examples (`sdk tlm pretrain --out`). Those of rules whose version has changed,
and of the rules that `--rules` names, are made again; the others are taken over. An interrupted run goes on.
What is drawn for an example stays the same, so that NEW is what a new folder with the same seed would be, as
far as no other estimate has changed.

OLD and NEW may be files of the sample that is shipped with weights (`replay.jsonl.gz`) too. `--seed` is that
of the examples it was drawn from.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary, rule_token
from host.tlm.training.replay import read_sample, write_replay
from research.pretraining.boards import training_boards
from research.pretraining.dataset import Dataset, make_example
from research.pretraining.ordered_pool import in_order
from research.pretraining.sentences import read_sentences
from research.pretraining.teacher import Teacher
from research.pretraining.training import SENTENCES


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m research.pretraining.kit.renew", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rules", nargs="*", default=[], help="whose estimates have changed")
    parser.add_argument("--seed", type=int, default=0, help="of a sample's examples")
    parser.add_argument("--jobs", type=int, default=1, help="processes that make a sample's examples")
    given = parser.parse_args(arguments)
    vocabulary = Vocabulary()
    if given.old.is_file():
        print(_renewed_sample(given, vocabulary))
        return
    path = given.old / SENTENCES
    old = read_sentences(path.read_text(), path, vocabulary)
    stale = _stale(old.rules, given.rules, vocabulary)
    new = Dataset(given.new / SENTENCES, old.seed, vocabulary)
    boards, count = training_boards(), 0
    for example in old.examples[len(new.examples) :]:
        if not stale.isdisjoint(example.prompt):
            example = make_example(old.seed, example.index, boards, Teacher(), vocabulary)
            count += 1
        new.add(example)
    print(f"{given.new}: {len(new.examples)} examples, {count} of them made again")


def _stale(rules: Mapping[str, int], named: Collection[str], vocabulary: Vocabulary) -> set[int]:
    """The tokens of rules whose examples are made again."""
    present = rule_versions()
    changed = {name for name, version in rules.items() if present.get(name) != version}
    return {vocabulary.number(rule_token(name)) for name in changed.union(named)}


def _renewed_sample(given: argparse.Namespace, vocabulary: Vocabulary) -> str:
    """Writes the sample anew; what was done, in one line."""
    rules, examples = read_sample(given.old, vocabulary)
    stale = _stale(rules, given.rules, vocabulary)
    kept = [one for one in examples if stale.isdisjoint(one.prompt)]
    numbers = [one.index for one in examples if not stale.isdisjoint(one.prompt)]
    make = partial(
        make_example, given.seed, boards=training_boards(), teacher=Teacher(), vocabulary=vocabulary
    )
    made = list(in_order(make, numbers, given.jobs))
    count = write_replay(given.new, [*kept, *made], len(examples), given.seed, vocabulary)
    return f"{given.new}: {count} of {len(examples)} examples, {count - len(kept)} of them made again"


if __name__ == "__main__":
    main()
