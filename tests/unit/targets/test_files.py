"""Boards of the user's own, and files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdk.cli.main import main
from targets import BoardFileError, MachineDescription, board_for, declared
from targets.files import load_board, load_core

BOARD = """
title = "Kitchen board"
core = "cortex_a72"
cores = 2
frequency_hz = 1e9
memory_bytes = 1073741824
memory_bytes_per_s = 3e9
memory_latency_s = 150e-9
parallel_launch_s = 1e-5
device_trees = ["Acme Kitchen"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    boards = tmp_path / "edgetlm" / "boards"
    boards.mkdir(parents=True)
    return boards


def test_a_file_of_the_users_is_a_board(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kitchen.toml").write_text(BOARD)
    assert declared()["kitchen"].cores == 2
    described = MachineDescription("aarch64", "0x41:0xd08", 2, (), {}, 0.0, 1 << 30, "Acme Kitchen Rev 2")
    board = board_for(described)
    assert board is not None
    assert (board.name, board.title) == ("kitchen", "Acme Kitchen Rev 2")
    assert board.hardware.frequency_hz == 1e9
    assert main(["targets"]) == 0
    assert "Kitchen board: cortex-a72" in capsys.readouterr().out


def test_a_file_of_the_users_replaces_one_of_ours(folder: Path) -> None:
    (folder / "raspberry_pi_4.toml").write_text(BOARD.replace("Acme Kitchen", "Raspberry Pi 4"))
    board = board_for(declared()["raspberry_pi_4"])
    assert board is not None
    assert board.title == "Kitchen board"


def test_a_core_can_stand_in_the_board_or_in_a_file(folder: Path) -> None:
    core = Path("targets/cores/sifive_u74.toml")
    text = (Path(__file__).parents[3] / core).read_text().replace("[[levels]]", "[[core.levels]]")
    inline = BOARD.replace('core = "cortex_a72"\n', "") + "[core]\n" + text
    (folder / "inline.toml").write_text(inline)
    assert load_board(folder / "inline.toml").core.mcpu == "sifive-u74"
    cores = folder.parent / "cores"
    cores.mkdir()
    own = (
        (Path(__file__).parents[3] / core).read_text().replace("latency_cycles = 5.0", "latency_cycles = 7.0")
    )
    (cores / "mine.toml").write_text(own)
    (folder / "own.toml").write_text(BOARD.replace("cortex_a72", "mine"))
    assert load_board(folder / "own.toml").core == load_core(cores / "mine.toml")
    assert load_board(folder / "own.toml").core.fma_latency_cycles == 7.0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cores = 2", "cores = ", "cannot be read"),
        ("cores = 2", "", "missing 'cores'"),
        ("cores = 2", "cores = 0", "cores = 0 is no int above zero"),
        ("cores = 2", 'cores = "two"', "cores = 'two' is no int"),
        ("cores = 2", "cores = 2\ncolour = 'red'", "unknown field 'colour'"),
        ("cortex_a72", "cortex_z9", "no core 'cortex_z9': use one of armv8"),
        ("cores = 2", "cores = 2\ngpu = 'TITAN'", "no GPU 'TITAN'"),
        ("cores = 2", "cores = 2\npayload = 'java'", "payload is 'java': use python or native"),
        ("cores = 2", "cores = 1000000", "cores = 1000000 is not from 1 to 1024"),
        ("cores = 2", "cores = 1" + "0" * 4000, "cores = "),
        ("cores = 2", "cores = true", "cores = True is no int"),
        ("frequency_hz = 1e9", "frequency_hz = inf", "frequency_hz = inf is no float"),
        ("frequency_hz = 1e9", "frequency_hz = nan", "frequency_hz = nan is no float"),
        ("frequency_hz = 1e9", "frequency_hz = 1e300", "frequency_hz = 1e+300 is not from 1e+06"),
        ("memory_bytes = ", "memory_bytes = 999999999999999999999999", "is not from 65536"),
        ("cores = 2", "cores = 2\ncache_bytes = { L3 = -1 }", "is not from 64"),
        ("cores = 2", "cores = 2\ncache_bytes = { L3 = 1e9 }", "cache_bytes = {'L3': 1000000000.0} is no"),
        ("Kitchen board", "\\u001b]0;PWN\\u0007", r"title = '\x1b]0;PWN\x07' is no text"),
        ("Kitchen board", "\\u202eboard", r"title = '\u202eboard' is no text"),
        ("Kitchen board", "x" * 500, "is no text that it can be"),
        ("cores = 2", "cores = 2\nsensors = ['../../etc']", "sensors = '../../etc' is no text"),
        ("cores = 2", "cores = 2\nrails = [" + "'a'," * 100 + "]", "rails has 100 items"),
        ("cores = 2", "cores = 2\nx = " + "[" * 100_000, "cannot be read"),
        ("cores = 2", "#" * (2 << 20), "it has more than 262144 bytes"),
        ("cores = 2", "a." * 100_000 + "b = 1", "it has a line of more than 4096 bytes"),
        ('"cortex_a72"', "5", "missing 'core'"),
        ('core = "cortex_a72"', "[core]\nlevels = 'abc'", "are no tables"),
        ('core = "cortex_a72"', "[core]\nlevels = [1]", "are no tables"),
        ("cores = 2", '"\\u001b[31m" = 1', r"unknown field '\x1b[31m'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    path = folder / "kitchen.toml"
    path.write_text(BOARD.replace(old, new))
    with pytest.raises(BoardFileError, match=str(path)):
        load_board(path)
    assert main(["targets"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error


@pytest.mark.parametrize("name", ["a b", "a\n", "\x1b[31m", "-x", "a;b"])
def test_a_board_is_not_called_anything(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / f"{name}.toml").write_text(BOARD)
    assert main(["targets"]) == 2
    error = capsys.readouterr().err
    assert "is no name of a board" in error and error.rstrip("\n").isprintable()


def test_what_a_core_can_be(folder: Path) -> None:
    text = (Path(__file__).parents[3] / "targets/cores/sifive_u74.toml").read_text()
    path = folder / "core.toml"
    for old, new in (
        ('mcpu = "sifive-u74"', 'mcpu = "a b; touch x"'),
        ('mcpu = "sifive-u74"', 'mcpu = "a\\n"'),
        ("[[levels]]", "[[levels]]\nways = 1e9"),
        ("[[levels]]\n", "[[levels]]\nunknown = 1\n"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(BoardFileError, match=r"core\.toml"):
            load_core(path)
    path.write_text(text + '\n[[levels]]\nname = "L2"\n' * 100)
    with pytest.raises(BoardFileError, match="at most 64 are taken"):
        load_core(path)
