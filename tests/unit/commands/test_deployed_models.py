"""Installed models that are measured again: what is compared, and what a device may say of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from host.commands.deployed_models import DeployedModel, _inputs, _rounds_at_installation, measure_deployed
from host.errors import EngineError, MeasureError
from host.manifest import Manifest
from host.model import Energy, Measurement
from host.statistics import Estimate

NO_ENERGY = Energy("unavailable", None, None, "no sensor")


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "edgetlm.bundle/2",
        "name": "net",
        "backend": "tvm",
        "files": {},
        "signature": {
            "inputs": [
                {"name": "image", "shape": [1, 3], "dtype": "float32"},
                {"name": "tokens", "shape": [2], "dtype": "int64"},
            ],
            "outputs": [],
        },
        "origin": {"name": "net.onnx", "format": "onnx", "content_hash": "x"},
        "model": "lib.so",
        "threads": 1,
        "measured": {"contenders": {"tvm": {"samples": {"rounds_ms": [1.0, 1.01, 0.99, 1.0]}}}},
        **changes,
    }


class FakeSession:
    """A model that takes so many seconds."""

    def __init__(self, seconds: float, draw: np.random.Generator) -> None:
        self.seconds, self._draw = seconds, draw
        self.inputs: list[np.ndarray] = []

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_inputs(self, inputs: list[np.ndarray]) -> None:
        self.inputs = list(inputs)

    def pause(self) -> None:
        pass

    resume = pause

    def measure(self, **plan: Any) -> Measurement:
        assert self.inputs and plan["energy"] is False
        return Measurement((self.seconds * self._draw.normal(1.0, 0.003),), NO_ENERGY, {}, {}, 1)


class FakeDevice:
    """A device with installed versions, each of which takes a time or does not load."""

    def __init__(self, *versions: tuple[str, float | str, dict[str, Any]]) -> None:
        self._times: dict[str, float | str] = {}
        self._bundles: list[dict[str, Any]] = []
        self._draw = np.random.default_rng(0)
        for role, seconds, fields in versions:
            self._times[f"/{len(self._bundles)}"] = seconds
            self._bundles.append(
                {
                    "name": fields["name"],
                    "version": f"{len(self._bundles)}" * 64,
                    "active": role == "active",
                    "earlier": role == "earlier",
                    "path": f"/{len(self._bundles)}",
                    "backend": "tvm",
                    "manifest": fields,
                }
            )

    def bundles(self) -> list[dict[str, Any]]:
        return self._bundles

    def open_session(self, engine: str, threads: int) -> Any:
        device = self

        class Session(FakeSession):
            def load_installed(self, path: str) -> None:
                found = device._times[path]
                if isinstance(found, str):
                    raise EngineError(found)
                self.seconds = found

        return Session(0.0, self._draw)


def measured(*versions: tuple[str, float | str, dict[str, Any]]) -> tuple[DeployedModel, ...]:
    device: Any = FakeDevice(*versions)
    return measure_deployed(device)


def test_the_active_version_is_compared_with_its_installation_and_the_earlier_one() -> None:
    (one,) = measured(("active", 1.2e-3, manifest()), ("earlier", 1.1e-3, manifest()))
    assert one.latency_s is not None and one.since_installed is not None and one.over_earlier is not None
    assert one.latency_s.value == pytest.approx(1.2e-3, rel=0.01)
    assert one.since_installed.value == pytest.approx(1.2, rel=0.02) and one.slower
    assert one.over_earlier.value == pytest.approx(1.2 / 1.1, rel=0.01) and one.earlier_is_faster
    assert (one.version[0], one.earlier[0], one.reason) == ("0", "1", "")


@pytest.mark.parametrize(("earlier_s", "faster"), [(1.0e-3, False), (1.3e-3, False), (0.9e-3, True)])
def test_only_an_earlier_version_that_is_shown_to_be_faster_is_offered(
    earlier_s: float, faster: bool
) -> None:
    (one,) = measured(("active", 1.0e-3, manifest()), ("earlier", earlier_s, manifest()))
    assert not one.slower and one.earlier_is_faster is faster


def test_noise_is_neither() -> None:
    wide = Estimate(1.2, 0.9, 1.6)
    assert not DeployedModel("net", "1", wide, wide, "2", wide).slower
    assert not DeployedModel("net", "1", wide, wide, "2", wide).earlier_is_faster
    assert not DeployedModel("net", "1", wide, wide, "2", Estimate(1.01, 1.005, 1.015)).earlier_is_faster
    assert not DeployedModel("net", "1", wide, Estimate(1.2)).slower


def test_versions_that_cannot_be_measured_say_why() -> None:
    (one,) = measured(("active", "it is damaged", manifest()), ("earlier", 1e-3, manifest()))
    assert one.latency_s is None and one.reason == "it is damaged"
    (one,) = measured(("active", 1e-3, manifest()), ("earlier", "it is damaged", manifest()))
    assert one.latency_s is not None and one.over_earlier is None
    assert one.reason == "the earlier version does not run: it is damaged"
    other = manifest(signature={"inputs": [], "outputs": []})
    (one,) = measured(("active", 1e-3, manifest()), ("earlier", 1e-3, other))
    assert one.over_earlier is None and "it has other inputs" in one.reason


def test_a_bundle_without_figures_is_measured_alone() -> None:
    (one,) = measured(("active", 1e-3, manifest(measured={})))
    assert one.latency_s is not None and one.since_installed is None and one.earlier == ""
    emulated = manifest(measured={**manifest()["measured"], "emulated": True})
    (one,) = measured(("active", 1e-3, emulated))
    assert one.since_installed is None


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "net"},
        {**manifest(), "signature": 5},
        {**manifest(), "threads": 1 << 40},
        {**manifest(), "threads": 0},
        {**manifest(), "decoder": {"context": 1, "chunk": 1, "vocabulary": 1, "end_tokens": []}},
        {
            **manifest(),
            "signature": {"inputs": [{"name": "a", "shape": [1 << 40], "dtype": "int8"}], "outputs": []},
        },
        {
            **manifest(),
            "signature": {"inputs": [{"name": "a", "shape": [-1], "dtype": "int8"}], "outputs": []},
        },
        {
            **manifest(),
            "signature": {"inputs": [{"name": "a", "shape": [1], "dtype": "\x1bobject"}], "outputs": []},
        },
        {
            **manifest(),
            "signature": {"inputs": [{"name": "a", "shape": [1] * 40, "dtype": "int8"}], "outputs": []},
        },
    ],
)
def test_what_a_device_says_of_a_bundle_is_looked_at(fields: dict[str, Any]) -> None:
    (one,) = measured(("active", 1e-3, fields))
    assert one.latency_s is None and one.reason and one.reason.isprintable()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_inputs_are_the_same_each_time_and_fit_any_table(name: str) -> None:
    fields = manifest()
    fields["signature"]["inputs"][0]["dtype"] = name
    read = Manifest.model_validate(fields)
    first, second = _inputs(read), _inputs(read)
    assert [one.dtype.name for one in first] == [name, "int64"]
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert first[0].astype("float32").std() > 0.1 and not first[1].any()


@pytest.mark.parametrize(
    "rounds", [5, "ab", [0.0], [-1.0], [float("inf")], ["x"], [None], {"a": 1}, [1e12], [[1.0]]]
)
def test_figures_of_an_installation_that_are_none_are_left_out(rounds: object) -> None:
    fields = manifest(measured={"contenders": {"tvm": {"samples": {"rounds_ms": rounds}}}})
    assert _rounds_at_installation(Manifest.model_validate(fields)) == ()


def test_too_many_inputs_are_refused_by_their_size() -> None:
    many = [{"name": f"a{number}", "shape": [1 << 26], "dtype": "int8"} for number in range(5)]
    read = Manifest.model_validate(manifest(signature={"inputs": many, "outputs": []}))
    with pytest.raises(MeasureError, match="take more than 256 MiB"):
        _inputs(read)
