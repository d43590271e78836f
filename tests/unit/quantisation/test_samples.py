"""Calibration files: what is read, and that nothing hostile is."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from host.errors import UserError
from host.model import TensorSpec
from host.quantisation import samples
from host.quantisation.samples import read_samples

IMAGE = TensorSpec("image", (1, 3, 4, 4), "float32")
IDS = TensorSpec("ids", (1, 5), "int64")


def images(count: int = 4) -> np.ndarray:
    return np.arange(count * 48, dtype=np.float32).reshape(count, 1, 3, 4, 4)


@pytest.mark.parametrize("shape", [(4, 1, 3, 4, 4), (4, 3, 4, 4)])
def test_samples_lie_along_the_first_axis_with_or_without_a_batch_of_one(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    ids = np.arange(20, dtype=np.int64).reshape(4, 1, 5)
    np.savez(tmp_path / "c.npz", ids=ids, image=np.asfortranarray(images().reshape(shape)))
    found = read_samples(tmp_path / "c.npz", [IMAGE, IDS])
    assert len(found) == 4
    for index, (image, tokens) in enumerate(found):
        np.testing.assert_array_equal(image, images()[index])
        np.testing.assert_array_equal(tokens, ids[index])


def test_a_folder_has_a_sample_in_each_file_in_the_order_of_names(tmp_path: Path) -> None:
    for index in (2, 0, 1):
        np.save(tmp_path / f"{index}.npy", images()[index])
    np.savez_compressed(tmp_path / "3.npz", image=images()[3])
    (tmp_path / "readme.txt").write_text("not a sample")
    found = read_samples(tmp_path, [IMAGE])
    np.testing.assert_array_equal([one[0] for one in found], images())


def saved(**arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def bomb(path: Path) -> None:
    """An archive that says how large its array is: 4 GB of zeros in a few megabytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo("image.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(info, "w", force_zip64=True) as stream:
            for _ in range(1025):
                stream.write(bytes(1 << 20))


def claims(path: Path) -> None:
    """An array that claims 4 TB in a file of a few bytes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", stream.getvalue())


def pickled(path: Path) -> None:
    np.savez(path, image=np.array([{"code": 1}], object))


def cut(path: Path) -> None:
    saved(image=images())(path)
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (saved(picture=images()), "its arrays are picture, the model's inputs are image"),
        (saved(image=images(), mask=images()), "its arrays are image, mask, the model's inputs are image"),
        (saved(image=images().astype("float64")), r"image is float64\[1, 3, 4, 4\], the model takes float32"),
        (saved(image=images()[:, :, :2]), r"image is \[4, 1, 2, 4, 4\], and \[samples, 1, 3, 4, 4\]"),
        (saved(image=images()[0, 0, 0, 0, 0]), r"image is \[\], and"),
        (saved(image=np.full((2, 1, 3, 4, 4), np.inf, np.float32)), "values that are not finite"),
        (saved(image=images(0)), "it has 0 samples: give 1 to 1024"),
        (saved(image=np.zeros((1025, 1, 3, 4, 4), np.float32)), "it has 1025 samples"),
        (bomb, "1.1 GB|over 1024 arrays or 1.1 GB"),
        (claims, r"an array of \[1099511627776\] in"),
        (pickled, "an array of object"),
        (cut, "cannot be read"),
        (lambda path: path.write_bytes(b"\x1b[31mnothing"), "cannot be read .*no .npz file"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
    ],
)
def test_what_does_not_fit_or_means_harm_is_refused_in_one_line(
    tmp_path: Path, write: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "c.npz"
    write(path)
    with pytest.raises(UserError, match=said) as caught:
        read_samples(path, [IMAGE])
    assert str(caught.value).startswith("--calibration ") and "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_arrays_of_different_lengths_are_no_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", image=images(3), ids=np.zeros((4, 1, 5), np.int64))
    with pytest.raises(UserError, match="different numbers of samples: image 3, ids 4"):
        read_samples(tmp_path / "c.npz", [IMAGE, IDS])


def test_a_folder_is_bounded_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(4):
        np.save(tmp_path / f"{index}.npy", images()[index])
    monkeypatch.setattr(samples, "MAX_BYTES", 3 * images()[0].nbytes)
    with pytest.raises(UserError, match=r"an array of \[1, 3, 4, 4\]"):
        read_samples(tmp_path, [IMAGE])
    with pytest.raises(UserError, match="the model has 2 inputs"):
        read_samples(tmp_path, [IMAGE, IDS])


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it has 0 files of .npz or .npy: give 1 to 1024, one a sample"):
        read_samples(tmp_path, [IMAGE])
