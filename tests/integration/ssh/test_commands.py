"""`sdk devices` from adding to removing, as a user types it."""

from __future__ import annotations

import pytest

from sdk.cli.main import main


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_two_commands_from_a_bare_board(board, capsys):
    code, out, err = _run(
        capsys, "devices", "add", "bench", "--host", f"127.0.0.1:{board.port}", "--tag", "kitchen"
    )
    assert (code, err) == (0, "")
    assert "board     x86_64: " in out
    assert "MB sent" in out
    assert "next: sdk deploy MODEL --device bench" in out

    code, _, err = _run(capsys, "devices", "add", "bench", "--host", "elsewhere")
    assert code == 2
    assert "there is a device bench already" in err

    code, out, err = _run(capsys, "devices", "install-agent", "bench")
    assert (code, err) == (0, "")
    assert "everything was there already" in out

    code, out, err = _run(capsys, "devices", "list")
    assert (code, err) == (0, "")
    assert f"bench        127.0.0.1:{board.port} x86_64 #kitchen; " in out

    _, out, err = _run(capsys, "devices", "doctor", "bench")
    assert err == ""
    for line in (
        "ok ssh",
        "ok python",
        "ok disk",
        "ok clock",
        "ok agent",
        "ok runtime      loads",
        "ok board",
    ):
        assert line in out
    assert "-- tensorrt" in out

    code, out, err = _run(capsys, "devices", "remove", "bench", "--purge")
    assert (code, err) == (0, "")
    assert f"removed {board.root} on bench" in out
    assert not board.root.exists()
    code, _, err = _run(capsys, "devices", "doctor", "bench")
    assert code == 2
    assert "no device is called 'bench'" in err


def test_a_board_that_does_not_answer_is_not_added_but_can_be_forgotten(board, capsys):
    address = f"127.0.0.1:{board.port}"
    code, _, err = _run(capsys, "devices", "add", "bench", "--host", address, "--board", "toaster")
    assert code == 2
    assert "no board is called 'toaster'" in err
    assert _run(capsys, "devices", "add", "bench", "--host", address, "--no-install")[0] == 0
    code, out, _ = _run(capsys, "devices", "doctor", "bench")
    assert code == 1
    assert "-- agent        is not installed" in out
    assert "sdk devices install-agent bench" in out

    board.stop()
    code, _, err = _run(capsys, "devices", "add", "other", "--host", address)
    assert code == 1
    assert "nothing listens at" in err
    code, out, err = _run(capsys, "devices", "list")
    assert code == 0
    assert "does not answer: bench: nothing listens" in out
    assert "other" not in out
    code, _, err = _run(capsys, "devices", "remove", "bench")
    assert code == 1
    assert "sdk devices remove bench --forget" in err
    assert _run(capsys, "devices", "remove", "bench", "--forget")[0] == 0
