"""Files that are mistaken for models: what each is, and what makes a model of it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.language_file import refuse_pointer
from host.model_file.checkpoints import ULTRALYTICS, names_ultralytics, require_exporter

# An archive of torch.export has one of these; one of torch.save has neither.
_EXPORTED = ("serialized_exported_program.json", "models/model.json")
_ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF\r\n\x1a\n"
# Of other runtimes: what was converted for them is not read, what they were converted from may be.
_CONVERTED = {
    ".engine": "TensorRT",
    ".trt": "TensorRT",
    ".xml": "OpenVINO",
    ".mlmodel": "Core ML",
    ".mlpackage": "Core ML",
    ".mnn": "MNN",
    ".param": "ncnn",
    ".rknn": "RKNN",
    ".hef": "Hailo",
}
_CONVERTER = (
    "in Python: import tensorflow as tf; data = tf.lite.TFLiteConverter.{source}.convert(); "
    "open({target!r}, 'wb').write(data)"
)
_EXPORT = (
    "in Python: import torch; model = YourModel(); {load}model.eval(); "
    "torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 224, 224),)), {target!r}) "
    "with a tensor of your input's shape"
)


def refuse_other_file(path: Path, head: bytes) -> None:
    """Refuse a file that is known not to be a model, with the next step.

    Args:
        path: of the file.
        head: its first bytes.

    Raises:
        ModelFileError: a pointer of Git LFS, weights without a model, or a model of Keras or for another
            runtime.
    """
    refuse_pointer(path, head)
    if head[:2] == b"\x80\x02" and path.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt"):
        raise ModelFileError(
            f"{path} is a pickle of an old torch.save, without the model's code: {_steps(path, True)}"
        )
    if path.suffix.lower() == ".safetensors":
        raise ModelFileError(f"{path} holds weights (safetensors), not the model: {_steps(path, True)}")
    if head.startswith(_HDF5):
        raise _of_keras(path)
    _refuse_converted(path)


def refuse_other_folder(path: Path) -> None:
    """Refuse a folder that is known not to be a model, with the next step.

    Raises:
        ModelFileError: a SavedModel of TensorFlow, an adapter of a model, or a model for another runtime.
        OSError: it cannot be read.
    """
    if (path / "saved_model.pb").is_file():
        source = f"from_saved_model({path.name!r})"
        raise ModelFileError(
            f"{path} is a SavedModel of TensorFlow: make TFLite of it, "
            f"{_CONVERTER.format(source=source, target=f'{path.name}.tflite')}"
        )
    if (path / "adapter_config.json").is_file():
        raise ModelFileError(
            f"{path} holds an adapter (LoRA) and not the model: merge both in Python with peft's "
            "merge_and_unload(), and write the result with save_pretrained"
        )
    _refuse_converted(path)


def _refuse_converted(path: Path) -> None:
    runtime = _CONVERTED.get(path.suffix.lower())
    if runtime:
        raise ModelFileError(
            f"{path} was converted for {runtime}: give the ONNX, .pt2 or TFLite file that it was made from"
        )


def _of_keras(path: Path) -> ModelFileError:
    source = f"from_keras_model(tf.keras.models.load_model({path.name!r}))"
    return ModelFileError(
        f"{path} is a model of Keras: make TFLite of it, "
        f"{_CONVERTER.format(source=source, target=f'{path.stem}.tflite')}"
    )


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip archive does, whole or not.

    Raises:
        OSError: it cannot be read.
    """
    # zipfile.is_zipfile looks at the end alone, and raises BadZipFile itself for an archive of several disks.
    with path.open("rb") as stream:
        return stream.read(len(_ZIP)) == _ZIP


def archive_format(path: Path) -> str:
    """The format of a zip archive.

    Returns:
        "pt2", or "ultralytics" of a checkpoint of Ultralytics, a pickle that has to be exported.

    Raises:
        ModelFileError: weights without a model, a TorchScript archive, a checkpoint of Ultralytics where
            their package is not installed, a model of Keras, arrays of NumPy, or damaged.
        OSError: it cannot be read.
    """
    names = _entry_names(path)
    if "model.weights.h5" in names:
        raise _of_keras(path)
    if names and all(name.endswith(".npy") for name in names):
        raise ModelFileError(
            f"{path} holds arrays of NumPy, not a model: give the model here, and arrays to sdk run --input "
            "or --calibration"
        )
    if any(name.endswith(end) for name in names for end in _EXPORTED):
        return "pt2"
    if _has(names, "constants.pkl") and any("/code/" in name for name in names):
        raise ModelFileError(
            f"{path} is a TorchScript archive, which torch.export does not read: "
            f"export the model's own module, {_steps(path, False)}"
        )
    if _has(names, "data.pkl"):
        if names_ultralytics(path, names):
            require_exporter(path)
            return ULTRALYTICS
        raise ModelFileError(
            f"{path} is what torch.save writes (a state dict or a pickled module), not an exported model: "
            f"{_steps(path, True)}"
        )
    return "pt2"


def _entry_names(path: Path) -> Sequence[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    # ValueError: a name that is not the UTF-8 that its entry declares.
    # NotImplementedError: an entry that declares a later version of the format than zipfile reads.
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        reason = printable(error, 100)
        raise ModelFileError(
            f"{path} is a damaged or truncated zip archive ({reason}): export or download it again"
        ) from error


def _has(names: Sequence[str], file: str) -> bool:
    return any(name.rpartition("/")[2] == file for name in names)


def _steps(path: Path, weights: bool) -> str:
    load = f"model.load_state_dict(torch.load({path.name!r}, weights_only=True)); " if weights else ""
    if path.suffix.lower() == ".safetensors":
        load = f"model.load_state_dict(safetensors.torch.load_file({path.name!r})); "
    return _EXPORT.format(load=load, target=f"{path.stem}.pt2")
