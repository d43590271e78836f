"""Errors of installed packages: which one has the wrong version, and what is said of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from host import versions
from host.sandbox import child

# Packages that lie on a path of their own: version, what each requires, and its module.
_PACKAGES = {
    "product-of-tests": ("1.0", ("inner-of-tests==2.0", "outer-of-tests==1.0 ; extra == 'host'"), ""),
    "inner-of-tests": ("1.0", (), ""),
    "outer-of-tests": ("1.0+cpu", ("deep_of_tests[fast] (>=3.1,<4)", "other; extra == 'x'"), ""),
    "deep-of-tests": ("0.9", (), ""),
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with packages; the product is the first of them."""
    for name, (version, requirements, source) in _PACKAGES.items():
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        facts = tmp_path / f"{module}-{version}.dist-info"
        facts.mkdir()
        needs = "".join(f"Requires-Dist: {one}\n" for one in requirements)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        (facts / "top_level.txt").write_text(f"{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(versions, "_OURS", "product-of-tests")
    # The modules are those of this folder, and of no test after it.
    for name in _PACKAGES:
        monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)
    return tmp_path


def failure(folder: Path, source: str) -> Exception:
    """What a module of the outer package raises when it is imported."""
    (folder / "outer_of_tests.py").write_text(source)
    sys.modules.pop("outer_of_tests", None)
    importlib.invalidate_caches()
    with pytest.raises(Exception) as caught:
        importlib.import_module("outer_of_tests")
    return caught.value


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from inner_of_tests import missing", "cannot import name 'missing' from 'inner_of_tests'"),
        (
            "import inner_of_tests; inner_of_tests.missing",
            "module 'inner_of_tests' has no attribute 'missing'",
        ),
        ("import inner_of_tests.missing", "No module named 'inner_of_tests.missing'"),
    ],
)
def test_a_required_package_of_another_version_is_named(installed: Path, source: str, reason: str) -> None:
    error = failure(installed, source)
    assert versions.of_a_package(error)
    said = versions.wrong_version(error)
    assert said is not None
    assert said.startswith(
        "inner-of-tests 1.0 is installed and does not fit, product-of-tests needs inner-of-tests 2.0: "
        f"pip install 'inner-of-tests==2.0' ({reason}"
    )
    assert "\n" not in said


def test_a_package_whose_code_failed_is_named(installed: Path) -> None:
    (installed / "inner_of_tests.py").write_text("raise RuntimeError('compiled\\nfor another\\x1b one')")
    error = failure(installed, "import inner_of_tests")
    said = versions.wrong_version(error)
    assert said is not None and said.startswith("inner-of-tests 1.0 is installed")
    assert said.endswith("(compiled for another\\x1b one)")


def test_what_a_required_package_requires_is_named_with_its_range(installed: Path) -> None:
    said = versions.wrong_version(failure(installed, "from deep_of_tests import missing"))
    assert said is not None and said.startswith(
        "deep-of-tests 0.9 is installed and does not fit, outer-of-tests needs deep-of-tests>=3.1,<4: "
        "pip install --force-reinstall 'deep-of-tests>=3.1,<4' ("
    )


def test_the_right_versions_are_not_blamed(installed: Path) -> None:
    # The version of the outer one is right: what follows the plus is a build.
    assert versions.wrong_version(failure(installed, "raise ImportError('of its own')")) is None
    assert versions.wrong_version(failure(installed, "import absent_of_tests")) is None


@pytest.mark.timeout(30)
def test_errors_that_cause_each_other_end(installed: Path) -> None:
    first, second = failure(installed, "raise ImportError('of its own')"), ValueError("of the other")
    first.__cause__, second.__cause__ = second, first
    assert versions.wrong_version(first) is None


def test_attributes_of_values_are_no_fault_of_a_package() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = None.missing  # type: ignore[attr-defined]
    assert not versions.of_a_package(caught.value)


def test_a_worker_does_not_blame_the_file(installed: Path) -> None:
    (installed / "outer_of_tests.py").write_text("def read():\n    from inner_of_tests import missing\n")
    reply = child.answer("outer_of_tests:read", {})
    assert reply["error"] == "EngineError"
    assert reply["message"].startswith("inner-of-tests 1.0 is installed and does not fit")
