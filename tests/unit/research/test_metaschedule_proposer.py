"""MetaSchedule's search as a proposer: new programs of the space, better ones once its model has learned."""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

import host
from host.compile.tuning.proposers import method_proposers
from host.errors import MeasureError
from host.model import Candidate, Measurement
from research import metaschedule
from research.baselines.proposer import MetaScheduleProposer
from tests.unit.tuning import simulated

SPACE, PROFILE = simulated.dense_space(), simulated.profile()
History = list[tuple[Candidate, Measurement]]


def batches(proposer: MetaScheduleProposer, count: int, size: int) -> list[list[Candidate]]:
    """What it proposes batch by batch, each measured before the next."""
    history: History = []
    found = []
    for _ in range(count):
        found.append(proposer.propose(SPACE, PROFILE, history, size, 0))
        history += [(one, simulated.measured(simulated.truth(SPACE, one))) for one in found[-1]]
    return found


def test_the_search_proposes_new_programs_and_better_ones_once_it_has_learned() -> None:
    found = batches(MetaScheduleProposer(), 4, 40)
    programs = [one.decisions for batch in found for one in batch]
    assert [len(batch) for batch in found] == [40] * 4
    assert len(set(programs)) == len(programs)
    assert all(SPACE.legal(dict(one)) for one in programs)
    assert {one.proposer for batch in found for one in batch} == {"metaschedule"}
    mean_s = [fmean(simulated.truth(SPACE, one) for one in batch) for batch in found]
    # Its cost model draws its scores until it has learned from a hundred programs.
    assert mean_s[3] < 0.8 * fmean(mean_s[:3])


def test_the_seed_decides_and_numpys_generator_is_left_alone() -> None:
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)
    first = MetaScheduleProposer().propose(SPACE, PROFILE, (), 8, 1)
    assert np.random.random() == expected
    assert MetaScheduleProposer().propose(SPACE, PROFILE, (), 8, 1) == first
    assert MetaScheduleProposer().propose(SPACE, PROFILE, (), 8, 2) != first


def test_the_package_names_it_as_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    content = tomllib.loads((Path(host.__file__).parents[1] / "pyproject.toml").read_text())
    named = content["project"]["entry-points"]["edgetlm.proposers"]
    entries = [EntryPoint(name, value, "edgetlm.proposers") for name, value in named.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)
    [proposer] = method_proposers("metaschedule")
    assert proposer.name == "metaschedule"


def test_without_xgboost_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MeasureError, match=r"needs XGBoost; pip install 'edgetlm\[bench\]'"):
        MetaScheduleProposer()


def test_intrinsics_are_registered_with_few_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM looks through all modules for each caller of each function: seconds, below tests or commands."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(metaschedule, "_INTRINSICS", "wsgiref")
    monkeypatch.setattr(metaschedule, "_INTRINSIC_MODULES", {"x86_64": "util"})
    monkeypatch.setattr(importlib, "import_module", lambda name: found.append((name, len(inspect.stack(0)))))
    monkeypatch.setitem(sys.modules, "wsgiref", sys)
    del sys.modules["wsgiref"]
    metaschedule.register_intrinsics("x86_64")
    [(name, callers)] = found
    assert name == "wsgiref.util" and callers < 10
