"""The folder in which a document's reader works: its files, its boards, and an environment of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests.integration.small_models import convnet, floats, save
from tests.integration.ssh.conftest import stop_agent
from tests.integration.ssh.sshd import Sshd, make_client
from tests.servers.postgres import Server
from tests.shared_cache import ZIG, share_with
from tests.tiny_tokenizer import WORDS, write_tokenizer
from tests.unit.documentation import ROOT

# What the documents call their boards, and the addresses of these.
BOARDS = {
    "pi5": ("pi5.local",),
    "orin": ("orin.local", "orin", "192.168.1.7", "192.168.1.20"),
    "vf2": ("visionfive.local",),
    "kitchen": ("192.168.1.21",),
    "garage": ("192.168.1.22",),
}
_STAND_INS = Path(__file__).parent / "stand_ins"


@dataclass(frozen=True)
class Place:
    """Where a document's commands run.

    Attributes:
        folder: the working folder; it looks like a checkout.
        environment: of its commands.
    """

    folder: Path
    environment: dict[str, str]


@contextmanager
def place(scratch: Path, shared: bool) -> Iterator[Place]:
    """A checkout with models of the names that documents use, and boards that answer over SSH.

    Args:
        scratch: an empty folder.
        shared: whether its hosts share their records, in a server of PostgreSQL.
    """
    folder, home = scratch / "checkout", make_client(scratch / "home")
    make_checkout(ROOT, folder)
    _write_files(folder)
    with ExitStack() as running:
        lines = []
        for name, addresses in BOARDS.items():
            board = Sshd(scratch / name, home)
            _give_numpy(board)
            board.start()
            running.callback(board.stop)
            running.callback(stop_agent, board)
            board.accept_host_key()
            lines += [f"Host {' '.join(addresses)}", "  HostName 127.0.0.1", f"  Port {board.port}"]
            lines += [f"  IdentityFile {home}/.ssh/id_ed25519"]
        lines += ["Host *", f"  UserKnownHostsFile {home}/.ssh/known_hosts"]
        (home / ".ssh" / "config").write_text("\n".join(lines) + "\n")
        environment = _environment(scratch, home)
        if shared:
            server = Server()
            running.callback(server.remove)
            environment["EDGETLM_RECORDS"] = server.url(server.database())
        yield Place(folder, environment)


def make_checkout(root: Path, folder: Path) -> None:
    """A copy of a repository: what is written there is not in the repository, whatever its name.

    Hidden folders (environments, caches, git's own) are not in it, nor what a deployment left.
    """
    folder.mkdir()
    for path in root.iterdir():
        # In a working tree beside others, `.git` is a file.
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, folder / path.name)
        elif path.is_dir() and not path.name.startswith((".", "edgetlm-out")):
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, folder / path.name, ignore=left_out)


def _environment(scratch: Path, home: Path) -> dict[str, str]:
    programs = scratch / "bin"
    programs.mkdir()
    # OpenSSH reads the files of the user of the system, whatever HOME says.
    for name in ("ssh", "scp"):
        found = shutil.which(name)
        assert found is not None, f"{name} is not installed"
        (programs / name).write_text(f'#!/bin/sh\nexec {found} -F {home}/.ssh/config "$@"\n')
        (programs / name).chmod(0o755)
    cache = scratch / "cache"
    share_with(cache)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("EDGETLM", "XDG", "SSH"))}
    return kept | {
        "HOME": str(home),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{_STAND_INS}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(cache),
        "XDG_DATA_HOME": str(scratch / "data"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "ZIG_GLOBAL_CACHE_DIR": str(ZIG),
        "OMP_NUM_THREADS": "1",
        "TVM_NUM_THREADS": "1",
        "COLUMNS": "120",
    }


def _give_numpy(board: Sshd) -> None:
    """NumPy, which the guides install as a package of the board's system, and a camera."""
    [site] = (board.folder / "python" / "lib").glob("python3.*/site-packages")
    origin = Path(np.__file__).parent
    for path in (origin, origin.with_name("numpy.libs"), _STAND_INS / "cv2.py"):
        (site / path.name).symlink_to(path)


def _write_files(folder: Path) -> None:
    """Models and samples; nothing of them is big."""
    models = folder / "edgetlm-out" / "models"
    models.mkdir(parents=True)
    # A small network stands in for MobileNetV2, which takes minutes on an emulated board.
    convnet(models / "mobilenetv2.onnx", seed=1, size=224)
    convnet(folder / "model.onnx", size=224)
    (folder / "models").mkdir()
    (folder / "models" / "detector.onnx").symlink_to("../model.onnx")
    _text(folder / "text.onnx")
    _resized(folder / "sizes.onnx")
    images = np.random.default_rng(0).normal(size=(8, 3, 224, 224)).astype(np.float32)
    np.savez(folder / "samples.npz", image=images)
    np.savez(folder / "x.npz", image=images[:1])
    for name in ("board.toml", "modes.toml"):
        shutil.copyfile(ROOT / "docs" / "screens" / name, folder / name)
    _language_model(folder / "small-llama")


def _text(path: Path) -> None:
    """Tokens, whose number is open."""
    draw = np.random.default_rng(1)
    weights = {"table": draw.normal(size=(50, 8)), "matrix": draw.normal(size=(8, 6))}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"]),
        helper.make_node("MatMul", ["e", "matrix"], ["scores"]),
    ]
    tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT64, (1, "seq"))
    arrays = {name: value.astype(np.float32) for name, value in weights.items()}
    save(path, nodes, [tokens], [floats("scores", 1, "seq", 6)], arrays)


def _resized(path: Path) -> None:
    """An image, and the size that it gets."""
    node = helper.make_node("Resize", ["image", "", "", "size"], ["out"], axes=[2, 3], mode="nearest")
    size = helper.make_tensor_value_info("size", TensorProto.INT64, (2,))
    save(path, [node], [floats("image", 1, 3, 8, 8), size], [floats("out", 1, 3, "height", "width")])


def _language_model(folder: Path) -> None:
    """A LLaMA of two layers with random weights, a tokenizer of a few words, and a chat template."""
    from tests.unit.importers.decoders import models

    folder.mkdir()
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 256}
    models.save(folder, "llama", eos_token_id=len(WORDS) - 1, **sizes)
    write_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }} {% endfor %}")
