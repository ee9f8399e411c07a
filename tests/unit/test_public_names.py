"""The public names of the package: they exist, they are documented, and "Raises" names public exceptions."""

import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

import fiveways

EXCEPTIONS = {
    name
    for name in fiveways.__all__
    if isinstance(getattr(fiveways, name), type) and issubclass(getattr(fiveways, name), BaseException)
}
BUILT_IN = {"CancelledError", "KeyError", "OSError", "RuntimeError", "TimeoutError", "TypeError", "ValueError"}
RAISED = re.compile(r"^ *((?:`?\w+`?(?:, )?)+): ", re.MULTILINE)


def documented() -> Iterator[tuple[str, str]]:
    """Yield public functions, classes and their public methods, each with its docstring."""
    for name in fiveways.__all__:
        value = getattr(fiveways, name)
        if isinstance(value, str):
            continue
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for member, found in vars(value).items():
                if not member.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
                    yield f"{name}.{member}", inspect.getdoc(found) or ""


DOCS = dict(documented())


def test_version_is_that_of_the_distribution() -> None:
    assert fiveways.__version__ == version("fiveways")


def test_names_are_sorted_and_listed_by_dir() -> None:
    assert sorted(fiveways.__all__) == sorted(set(fiveways.__all__)) == sorted(dir(fiveways))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'disconnect'"):
        fiveways.disconnect  # noqa: B018


@pytest.mark.parametrize("name", DOCS)
def test_public_name_has_a_docstring(name: str) -> None:
    assert DOCS[name].strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", [name for name, doc in DOCS.items() if "Raises:" in doc])
def test_documented_exception_is_public(name: str) -> None:
    section = re.split(r"^\w+:$", DOCS[name].partition("Raises:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    named = {each.strip("` ") for line in RAISED.findall(section) for each in line.split(",")}
    assert named, f"{name} names no exception under Raises"
    assert named <= EXCEPTIONS | BUILT_IN, f"{name} raises exceptions that are not public"
