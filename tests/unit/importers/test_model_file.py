from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from host.bundle import require_processor
from host.errors import BundleError, ModelFileError
from host.manifest import Manifest
from host.model_file import detect_format
from targets import MachineDescription, declared


def _state(path: Path) -> None:
    torch.save(torch.nn.Linear(3, 2).state_dict(), path)


def _old(path: Path) -> None:
    torch.save(torch.nn.Linear(3, 2).state_dict(), path, _use_new_zipfile_serialization=False)


def _pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")


def _script(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("net/data.pkl", "net/code/__torch__/net.py", "net/constants.pkl"):
            archive.writestr(name, "")


def _keras(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, "")


def _saved_model(path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").touch()


def _yolo(path: Path) -> None:
    # The pickle names the class of the model, as those of Ultralytics do, and would run code.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "yolo11n/data.pkl",
            b"\x80\x02}q\x00(X\x05\x00\x00\x00modelcultralytics.nn.tasks\nDetectionModel\n.",
        )
        archive.writestr("yolo11n/version", "3")


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("net.pt", _state, ("torch.save", "load_state_dict", "torch.export.save", "'net.pt2'")),
        ("net.pth", _old, ("old torch.save", "torch.export.save", "'net.pt2'")),
        (
            "yolo11n.pt",
            _yolo,
            ("Ultralytics", "pip install ultralytics", "yolo export", "give yolo11n.onnx"),
        ),
        ("net.pt", _script, ("TorchScript", "torch.export.save", "'net.pt2'")),
        ("net.h5", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"), ("Keras", "load_model('net.h5')")),
        ("net.keras", _keras, ("Keras", "TFLiteConverter", "'net.tflite'")),
        ("net", _saved_model, ("SavedModel", "from_saved_model('net')", "'net.tflite'")),
        ("net.npz", lambda path: np.savez(path, x=np.ones(2)), ("arrays of NumPy", "sdk run --input")),
        ("net.xml", lambda path: path.write_text("<net/>"), ("OpenVINO", "that it was made from")),
        # Its first byte is that of an ONNX file.
        ("net.mlmodel", lambda path: path.write_bytes(b"\x08\x01"), ("Core ML", "that it was made from")),
        ("net.mlpackage", Path.mkdir, ("Core ML", "that it was made from")),
        ("net.onnx", _pointer, ("Git LFS", "git lfs pull")),
        ("net.pt2", _pointer, ("Git LFS", "git lfs pull")),
    ],
)
def test_a_file_that_is_no_model_says_what_it_is(
    name: str, write: Callable[[Path], object], words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path)
    with pytest.raises(ModelFileError) as error:
        detect_format(path)
    text = str(error.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


_LOCATOR_OF_TWO_DISKS = b"PK\x06\x07" + struct.pack("<IQI", 0, 0, 2)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xff", "zip file version 25.5"),
        ("é".encode(), b"\xff\xff", "utf-8"),
        (b"PK\x01\x02", b"PK\x00\x00", "magic number"),
        (b"PK\x05\x06", b"", "not a zip file"),
        (b"PK\x05\x06", _LOCATOR_OF_TWO_DISKS + b"PK\x05\x06", "multiple disks"),
    ],
)
@pytest.mark.parametrize("name", ["net.pt2", "net.pt", "net.onnx"])
def test_an_archive_with_an_unreadable_directory_is_damaged(
    name: str, old: bytes, new: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/models/model.json", "")
        archive.writestr("net/é", "")
    assert detect_format(path) == "pt2"
    begin, found, end = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(begin + new + end)
    with pytest.raises(ModelFileError, match=f"{name} is a damaged or truncated zip archive .*{reason}"):
        detect_format(path)


def test_the_steps_that_are_offered_make_a_model(tmp_path: Path) -> None:
    _state(tmp_path / "net.pt")
    with pytest.raises(ModelFileError) as error:
        detect_format(tmp_path / "net.pt")
    program = str(error.value).split("in Python: ")[1].split(" with a tensor")[0]
    for old, new in (
        ("YourModel()", "torch.nn.Linear(3, 2)"),
        ("(1, 3, 224, 224)", "(1, 3)"),
        ("torch.zeros(1, 3, 224, 224)", "torch.zeros(1, 3)"),
        ("'net.pt", f"'{tmp_path}/net.pt"),
    ):
        program = program.replace(old, new)
    exec(program)
    assert detect_format(tmp_path / "net.pt2") == "pt2"


def _manifest(backend: str, triple: str) -> Manifest:
    return Manifest.model_construct(backend=backend, target={"kind": "llvm", "mtriple": triple})


def test_a_bundle_for_another_processor_is_named() -> None:
    machine: MachineDescription = declared()["x86_64-v3"]
    with pytest.raises(BundleError, match="was compiled for aarch64, and desk is x86_64: deploy"):
        require_processor(_manifest("tvm", "aarch64-linux-gnu"), "net.zip", machine, "desk")
    require_processor(_manifest("tvm", "x86_64-linux-gnu"), "net.zip", machine, "desk")
    require_processor(_manifest("onnxruntime", "aarch64-linux-gnu"), "net.zip", machine, "desk")


def test_a_bundle_with_matrix_registers_needs_a_processor_with_them() -> None:
    """Such a program would end there with an illegal instruction; the agent leaves out what Linux refuses."""
    machine: MachineDescription = declared()["x86_64-v4"]
    target = {"mtriple": "x86_64-linux-gnu", "mattr": ["+avx512vnni", "+amx-tile", "+amx-int8"]}
    manifest = Manifest.model_construct(backend="tvm", target=target)
    with pytest.raises(BundleError, match="processor with amx_tile, amx_int8, which desk lacks"):
        require_processor(manifest, "net.zip", machine, "desk")
    able = replace(machine, features=(*machine.features, "amx_tile", "amx_int8"))
    require_processor(manifest, "net.zip", able, "desk")


def test_a_file_that_is_not_there_is_answered_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.onnx: no such file: give the path of an ONNX, \.pt2"):
        detect_format(tmp_path / "absent.onnx")
    (tmp_path / "mobilenet.onnx").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        ModelFileError, match=r"mobilnet\.onnx: no such file: did you mean .*mobilenet\.onnx\?"
    ):
        detect_format(tmp_path / "mobilnet.onnx")
    with pytest.raises(ModelFileError, match=r"no such file: did you mean .*mobilenet\.onnx\?"):
        detect_format(tmp_path / "x.tflite")
    with pytest.raises(ModelFileError, match="no such file: give the path"):
        detect_format(tmp_path / "absent" / "x.onnx")
