"""The bill of materials: every pin with its hashes, valid, and the same bytes each time."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from host.payload.pins import pins as board_pins
from tests.unit.test_requirements import FILES, ROOT, entries, normalised

sys.path.insert(0, str(ROOT / "scripts"))
try:
    import make_sbom
finally:
    sys.path.pop(0)

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
# Licences that would bind what is made with EdgeTLM.
REFUSED = ("AGPL", "SSPL", "BUSL")


@pytest.fixture(scope="module")
def bom() -> dict[str, Any]:
    """What the script writes, which it has validated against the schema."""
    made: dict[str, Any] = json.loads(make_sbom.text_of(make_sbom.make_bom(make_sbom.read_pins(), WHEN)))
    return made


def test_every_pinned_package_is_listed_once_with_its_hashes(bom: dict[str, Any]) -> None:
    listed = {(one["name"], one["version"]): one for one in bom["components"]}
    assert len(listed) == len(bom["components"])
    wanted = {(name, version) for file in FILES for name, version in entries(file).items()}
    sent = {(normalised(pin.partition("==")[0]), pin.partition("==")[2]) for pin in board_pins()}
    assert set(listed) == wanted | sent
    for pin, wheels in board_pins().items():
        component = listed[normalised(pin.partition("==")[0]), pin.partition("==")[2]]
        assert set(wheels) <= {one["content"] for one in component["hashes"]}, pin
        assert {"name": "edgetlm:sent-to-boards", "value": "true"} in component["properties"]
    text = "".join(file.read_text() for file in FILES)
    for component in bom["components"]:
        assert component["hashes"], component["name"]
        for one in component["hashes"]:
            assert one["content"] in text or component["properties"][-1]["value"] == "true"


def test_scopes_say_what_serves_tests_alone(bom: dict[str, Any]) -> None:
    scopes = {(one["name"], one["version"]): one["scope"] for one in bom["components"]}
    assert all(scopes[one] == "required" for one in entries(ROOT / "requirements/host.txt").items())
    versions = {name: scope for (name, _), scope in scopes.items() if name in ("pytest", "psycopg", "mkdocs")}
    assert versions == {"pytest": "excluded", "psycopg": "optional", "mkdocs": "excluded"}


def test_licences_are_known_and_allowed(bom: dict[str, Any]) -> None:
    for one in bom["components"]:
        texts = [str(licence) for licence in one.get("licenses", ())]
        assert texts or one["scope"] != "required", f"{one['name']} declares no licence"
        assert not any(refused in text for refused in REFUSED for text in texts), one["name"]


def test_dependencies_lead_to_what_is_listed(bom: dict[str, Any]) -> None:
    graph = {one["ref"]: one.get("dependsOn", []) for one in bom["dependencies"]}
    refs = {one["bom-ref"] for one in bom["components"]}
    assert {other for others in graph.values() for other in others} <= refs
    assert any(other.startswith("pkg:pypi/apache-tvm@") for other in graph["edgetlm"])
    paramiko = next(others for ref, others in graph.items() if ref.startswith("pkg:pypi/paramiko@"))
    assert any(other.startswith("pkg:pypi/cryptography@") for other in paramiko)


def test_the_same_files_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bom: dict[str, Any]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(WHEN.timestamp())))
    assert make_sbom.main(["-o", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text()) == bom


def test_a_pin_without_hashes_is_an_error_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("thing>=1\n")
    with pytest.raises(ValueError, match="is no pin"):
        make_sbom.read_pins(tmp_path)
