"""`sdk tlm` from the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.network import load_model
from sdk.cli.main import main

SMALL = ["--examples", "22", "--layers", "1", "--width", "32"]


def test_pretrain_writes_a_checkpoint_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    assert main(["tlm", "pretrain", "--out", str(out), "--steps", "2", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "sentences 22 of 22" in text
    assert "training 2 of 2, loss" in text
    assert load_model(out, Vocabulary())[1].training["steps"] == 2
    assert main(["tlm", "pretrain", "--out", str(out), "--steps", "3", *SMALL]) == 1
    assert "--resume" in capsys.readouterr().err
    assert main(["tlm", "pretrain", "--out", str(out), "--steps", "3", "--resume", *SMALL]) == 0
    assert "sentences" not in capsys.readouterr().out
    assert load_model(out, Vocabulary())[1].training["steps"] == 3


def test_odd_widths_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tlm", "pretrain", "--out", str(tmp_path / "model"), "--width", "33"]) == 2
    assert "multiple of 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "late"), [("sdk.cli.management.tlm", "torch"), ("host.tlm.proposer", "transformers")]
)
def test_naming_the_command_and_the_proposer_loads_no_learning(module: str, late: str) -> None:
    code = f"import sys, {module}; sys.exit({late!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
