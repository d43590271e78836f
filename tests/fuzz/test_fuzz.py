"""A few minutes of the harness: everything that was a fault once, and the first seeds of each target.

By hand there is no end to it: see docs/fuzzing.md.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz import mutate
from tests.fuzz.case import Case, Outcome, Tree, canaries, complaint
from tests.fuzz.corpus import bundles, frames, pt2_models
from tests.fuzz.runner import Plan, Summary, judged, run
from tests.fuzz.targets import TARGETS, target_of
from tests.fuzz.targets.native import NativeReader, Verdict, disagreement

# The first of them may wait for the build of the native executor, or for others that use this machine.
pytestmark = pytest.mark.timeout(1200)

# Seeds by target, beside the corpus: less than a minute in all.
COUNTS = {
    "models": 30,
    "compiling": 10,
    "manifests": 400,
    "frames": 4000,
    "live": 750,
    "records": 125,
    "texts": 400,
    "tasks": 20,
    "numbers": 4,
    "quantised": 4,
}
# By hand and at night: the figures of the threat model.
MANY = {
    "models": 10_000,
    "compiling": 1000,
    "manifests": 10_000,
    "frames": 100_000,
    "live": 20_000,
    "records": 5000,
    "texts": 10_000,
    "tasks": 5000,
    "numbers": 200,
    # Beyond are two models of which a number lies on a tie, see docs/fuzzing.md.
    "quantised": 60,
}
# Targets whose cases are valid.
VALID = {"numbers", "quantised"}


@pytest.fixture(autouse=True)
def references() -> None:
    """Original runtimes run in processes of their own, as those of a user do."""


def tried(name: str, count: int, tmp_path: Path) -> Summary:
    summary = run(target_of(name), Plan(count, kept=tmp_path / "kept"))
    assert not summary.violations, json.dumps(summary.violations[:5], indent=1)
    return summary


def test_every_target_is_tried() -> None:
    assert set(COUNTS) == set(MANY) == set(TARGETS)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_nothing_breaks_a_rule(name: str, tmp_path: Path) -> None:
    summary = tried(name, COUNTS[name], tmp_path)
    assert summary.cases == COUNTS[name] + len(target_of(name).corpus())
    # A harness whose cases are all refused at the first look tries nothing.
    taken = summary.outcomes["ok"] + summary.outcomes["answered"]
    assert taken == summary.cases if name in VALID else 0 < taken < summary.cases, summary.outcomes


@pytest.mark.fuzz_long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", sorted(MANY))
def test_nothing_breaks_a_rule_in_many_cases(name: str, tmp_path: Path) -> None:
    tried(name, MANY[name], tmp_path)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_seed_makes_the_same_case_again(name: str) -> None:
    for seed in (0, 7, 1234):
        made, again = target_of(name).case(seed), target_of(name).case(seed)
        assert made == again and made.files
        assert all(isinstance(data, bytes) for data in made.files.values())


class Faulty:
    """A target that breaks rules as its cases say."""

    name = "faulty"
    apart = False

    def open(self, place: Path) -> None:
        self.place = place

    def close(self) -> None:
        pass

    def corpus(self) -> list[Case]:
        return [Case("corpus", {"a": b"crash"}), Case("fine", {"a": b"fine"})]

    def case(self, seed: int) -> Case:
        said = (b"fine", b"raise", b"crash", b"refuse", b"lines", b"slow")[seed % 6]
        return Case(f"faulty-{seed}", {"a": said, "b/c": b"x"}, {"b/c": 1 << 30} if seed % 2 else {})

    def run(self, case: Case) -> Outcome:
        if case.main == b"raise":
            raise KeyError("missing")
        if case.main == b"crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if case.main == b"refuse":
            return Outcome("refused", "no")
        if case.main == b"lines":
            return Outcome("refused", "a\nb", complaint("a\nb"))
        return Outcome("ok", memory_bytes=5_000_000_000 if case.main == b"slow" else 5)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_breaks_a_rule_is_found_and_kept(jobs: int, tmp_path: Path) -> None:
    summary = run(Faulty(), Plan(12, seed=6, jobs=jobs, kept=tmp_path))
    assert summary.cases == 14 and summary.next_seed == 18
    assert summary.outcomes == {"ok": 5, "escaped": 2, "lost": 3, "refused": 4}
    found = {one["name"]: one["violation"] for one in summary.violations}
    assert "KeyError" in found["faulty-7"] and "SIGKILL" in found["faulty-8"] and "SIGKILL" in found["corpus"]
    assert "several lines" in found["faulty-10"] and "memory" in found["faulty-11"] and len(found) == 9
    assert summary.worst_bytes[0] == 5_000_000_000
    again = Case.read(tmp_path / "faulty" / "faulty-7")
    assert again.files == {"a": b"raise", "b/c": b""} and again.holes == {"b/c": 1 << 30}
    outcome, _ = judged(Faulty(), again)
    assert outcome.kind == "escaped"


def test_readers_that_differ_are_found() -> None:
    taken, refused = Verdict(True, ""), Verdict(False, "no")
    assert disagreement(taken, taken) == disagreement(refused, refused) == ""
    assert "native executor refused (no)" in disagreement(taken, refused)
    assert "native executor ok" in disagreement(refused, taken)
    assert disagreement(refused, Verdict(False, "a\x1b[31m"))


def test_the_native_readers_are_asked() -> None:
    reader = NativeReader("json")
    try:
        assert reader.read(b"[1]") == Verdict(True, "")
        assert not reader.read(b"[1").accepted
        assert reader.read(b"[1]").accepted
    finally:
        reader.close()


def test_mutations_change_and_leave_the_original_alone() -> None:
    header = frames.HEADERS["frame"][0]
    before = json.dumps(header)
    changed: list[Any] = [mutate.grown(Random(seed), header) for seed in range(200)]
    assert json.dumps(header) == before
    assert sum(one != header for one in changed) > 150
    data = json.dumps(bundles.manifest("tvm")).encode()
    assert sum(mutate.mangled(Random(seed), data) != data for seed in range(200)) > 150


def test_payloads_run_where_they_are_trusted(tmp_path: Path) -> None:
    program = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    ran = 0
    for payload in pt2_models.payloads():
        folder = tmp_path / str(ran)
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-c", program], input=payload, cwd=folder, capture_output=True)
        ran += bool(canaries(folder))
    # The others are for torch, or only take time.
    assert ran >= 9


def test_files_elsewhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    tree = Tree(tmp_path)
    assert tree.violation() == ""
    for change in (
        lambda: (tmp_path / "b").mkdir(),
        lambda: (tmp_path / "b" / "c").write_text(""),
        lambda: (tmp_path / "a").write_text("12"),
        lambda: (tmp_path / "a").chmod(0o777),
        lambda: (tmp_path / "a").unlink(),
    ):
        change()
        assert "outside of their place" in tree.violation()
        assert tree.violation() == ""


def test_messages_for_people_are_one_clean_line() -> None:
    assert complaint("model.onnx: no such file") == ""
    for text in ("", "a\nb", "\x1b[31m", "internal error: x", "Traceback (most recent call last)", "\u202e"):
        assert complaint(text)
