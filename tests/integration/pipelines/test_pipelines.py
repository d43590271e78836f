"""The script of the pipelines on this machine, and the files that call it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import small_models
from tests.unit.documentation import ROOT, commands, parse

FOLDER = ROOT / "integrations"
SCRIPT = FOLDER / "deploy_and_report.sh"
ACTION = yaml.safe_load((FOLDER / "github/action.yml").read_text())
TEMPLATE = yaml.safe_load((FOLDER / "gitlab/edgetlm.yml").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a model, and `sdk` on the path. DEPLOYED is a file of figures to take instead."""
    small_models.convnet(tmp_path / "net.onnx")
    program = tmp_path / "bin" / "sdk"
    program.parent.mkdir()
    again = 'if [ "$1" = deploy ] && [ -n "$DEPLOYED" ]; then exec cp "$DEPLOYED" "$OUT/figures.json"; fi'
    program.write_text(f'#!/bin/sh\n{again}\nexec "{sys.executable}" -m sdk.cli "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MODEL": "net.onnx",
        "DEVICE": "replay:" + str(ROOT / "examples/replay/small_board.toml"),
        "OPTIONS": "--threads 1 --backend tvm",
        "OUT": "out",
        "DEPLOYED": "",
        **variables,
    }
    return subprocess.run(
        ["bash", str(SCRIPT)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_model_is_deployed_compared_and_commented(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stderr
    comment = (folder / "out/comment.md").read_text()
    assert comment.startswith("### EdgeTLM\n\n| figure | unit | value | remark |\n")
    assert "| largest relative error |" in comment and "Compared" not in comment
    assert json.loads((folder / "out/figures.json").read_text())["backend"] == "tvm"
    assert done.stdout.endswith(comment)
    figures = json.loads((folder / "out/figures.json").read_text())
    # A state before that took half of the bytes.
    before = {**figures, "bundle_bytes": figures["bundle_bytes"] // 2}
    (folder / "before.json").write_text(json.dumps(before))
    (folder / "after.json").write_text(json.dumps(figures))
    again = run(folder, BASELINE="before.json", DEPLOYED="after.json")
    assert again.returncode == 3, again.stderr
    assert re.search(r"\| memory \|.*\| worse \|", (folder / "out/comment.md").read_text())


def test_a_gate_that_is_not_met_fails_and_is_commented(folder: Path) -> None:
    done = run(folder, OPTIONS="--threads 1 --backend tvm --max-bundle 1K", BASELINE="missing.json")
    assert done.returncode == 3
    comment = (folder / "out/comment.md").read_text()
    assert "| largest relative error |" in comment
    assert "Not installed (exit code 3):" in comment and "the gate max-bundle" in comment
    assert "the gate max-bundle" in done.stderr


def test_a_failure_is_commented_with_its_reason(folder: Path) -> None:
    done = run(folder, MODEL="missing; touch escaped.onnx")
    assert done.returncode == 2
    comment = (folder / "out/comment.md").read_text()
    assert (
        "Nothing was deployed (exit code 2):" in comment
        and "    error: missing; touch escaped.onnx" in comment
    )
    assert not (folder / "escaped.onnx").exists()


def steps() -> list[str]:
    """All that shells are given by the two files and the script."""
    found = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    for part in ("before_script", "script", "after_script"):
        found += TEMPLATE["edgetlm"][part]
    return [*found, SCRIPT.read_text()]


@pytest.mark.parametrize("text", steps())
def test_a_step_is_a_script_of_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What a pull request says is data: a variable of the step, and no part of its script.
    assert "${{" not in text


@pytest.mark.parametrize("code", [0, 1])
def test_a_comment_that_may_not_be_written_fails_no_pipeline(code: int, tmp_path: Path) -> None:
    """As in pull requests from forks, whose token may read alone."""
    [step] = [one for one in ACTION["runs"]["steps"] if one.get("name") == "Comment"]
    comment = tmp_path / "edgetlm-out" / "ci" / "comment.md"
    comment.parent.mkdir(parents=True)
    comment.write_text("table")
    program = tmp_path / "gh"
    program.write_text(f"#!/bin/sh\necho $* > words\nexit {code}\n")
    program.chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PULL_REQUEST": "7", "GITHUB_REPOSITORY": "me/it"}
    # As GitHub runs `shell: bash`.
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "words").read_text().startswith("pr comment 7 --repo me/it ")
    assert done.stdout.startswith("::warning ") == bool(code)


def test_every_command_of_the_steps_is_one_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [
        line.replace('"${model[@]}"', "net.onnx")
        .replace('"${options[@]}"', "--threads 1")
        .replace("$TOLERANCE", "1")
        for text in steps()
        for line in commands(text)
    ]
    assert {" ".join(line.split()[:3]) for line in found} >= {"sdk devices emulate", "sdk report show"}
    for line in found:
        parse(line)


def test_inputs_and_variables_are_those_of_the_script() -> None:
    known = set(re.findall(r"\$\{([A-Z]+):=", SCRIPT.read_text()))
    [deploy] = [step for step in ACTION["runs"]["steps"] if step.get("id") == "deploy"]
    assert set(deploy["env"]) == known - {"OUT"}
    for name, value in deploy["env"].items():
        assert value == f"${{{{ inputs.{name.lower()} }}}}" and name.lower() in ACTION["inputs"]
    assert known <= set(TEMPLATE["variables"])
    assert (FOLDER / "github" / ".." / "deploy_and_report.sh").is_file()


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line.strip()]


def copied() -> list[str]:
    words = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    return [word for line in words for word in line]


def test_the_containers_user_has_no_rights_and_installs_nothing_without_a_hash() -> None:
    found = instructions()
    by_name: dict[str, Any] = dict(found)
    assert by_name["USER"] == "edgetlm" and json.loads(by_name["ENTRYPOINT"]) == ["sdk"]
    base = re.fullmatch(r"BASE=docker\.io/library/python:(\d+\.\d+)-slim-\w+", by_name["ARG"])
    assert base is not None and base[1] == "3.11"
    assert [rest for name, rest in found if name == "FROM"] == ["${BASE} AS build", "${BASE}"]
    for name, rest in found:
        for part in rest.split("&&") if name == "RUN" else ():
            if "pip install" in part:
                assert "--require-hashes -r requirements/cpu.txt" in part or "--no-index" in part, part


def test_the_container_gets_what_it_copies_and_builds_the_whole_wheel(tmp_path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(kept) == sorted(copied())
    source = tmp_path / "source"
    for name in copied():
        files = [ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*")
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                target = source / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--target", str(tmp_path / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "site"
    for name in ("sdk/cli/main.py", "host/payload/pins.json", "device_agent/native/crypto/crypto.zig"):
        assert (installed / name).is_file(), name
    [metadata] = installed.glob("edgetlm-*.dist-info")
    assert "sdk = sdk.cli.entry:command" in (metadata / "entry_points.txt").read_text()
    assert (metadata / "licenses" / "NOTICE").is_file()
