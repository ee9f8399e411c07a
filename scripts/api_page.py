"""Print docs/api.md: the public API from its signatures and docstrings."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Final

import fiveways

_SECTIONS: Final = (
    ("Connections", ("connect", "connect_sync", "connect_mqtt", "Peer", "MqttPeer")),
    ("Calls, notes and events", ("PendingCall", "Note", "Event", "Retry")),
    ("Applications", ("App", "Context", "CallingPeer", "Reply", "Fail", "Job", "Update")),
    ("A hub in a program", ("serve", "EmbeddedHub")),
    ("Errors", ()),
)
_INTRODUCTION: Final = """# Python API

Every name here is available as `fiveways.<name>`. The [guide](guide.md) explains how they work together.

This page is generated from the code by `make docs`.
"""
_WIDTH: Final = 88
_FIELD: Final = re.compile(r"^(Args|Returns|Yields|Raises):$", re.MULTILINE)

_NAMED: Final = re.compile(r"\*{0,2}\w+(, \*{0,2}\w+)*: ")


def page() -> str:
    """Return the whole page."""
    named = {name for _, names in _SECTIONS for name in names}
    rest = [name for name in fiveways.__all__ if name not in named and name != "__version__"]
    parts = [_INTRODUCTION]
    for title, names in _SECTIONS:
        shown = [*names, *rest] if title == "Errors" else [name for name in names if name in fiveways.__all__]
        parts.append(f"## {title}\n")
        parts += [entry for name in shown for entry in _entries(name, getattr(fiveways, name))]
    return "\n".join(parts).rstrip() + "\n"


def _entries(name: str, value: object) -> Iterator[str]:
    """Yield a public name, and its public members if it is a class."""
    yield f"### {name}\n"
    if not inspect.isclass(value):
        yield _signature(name, value)
        yield _text(value)
        return
    if issubclass(value, Enum):
        yield _text(value)
        yield "Values: " + ", ".join(f"`{each.value}`" for each in value) + ".\n"
        return
    if issubclass(value, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        yield f"An exception, derived from {bases}.\n"
    elif "__init__" in vars(value) and value.__init__.__doc__:
        yield _signature(name, value)
    yield _text(value)
    for member, found in _members(value):
        if isinstance(found, property):
            yield f"#### {name}.{member}\n"
            yield _text(found)
        else:
            yield f"#### {name}.{member}()\n"
            yield _signature(member, found)
            yield _text(found)


def _members(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the documented public methods and properties of a class, in the order of the code."""
    seen: set[str] = set()
    for kind in cls.__mro__:
        if not kind.__module__.startswith("fiveways"):
            continue
        for name, found in vars(kind).items():
            function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            is_shown = isinstance(function, property) or inspect.isfunction(function)
            if is_shown and not name.startswith("_") and name not in seen and inspect.getdoc(function):
                seen.add(name)
                yield name, function


def _signature(name: str, value: object) -> str:
    """Return a signature as the code has it: names of defaults and types are shorter than their values."""
    function = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)  # type: ignore[arg-type]
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    if arguments.args and arguments.args[0].arg in {"self", "cls"}:
        del arguments.args[0]
    returns = "" if node.returns is None or inspect.isclass(value) else f" -> {ast.unparse(node.returns)}"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    text = f"{prefix}{name}({ast.unparse(arguments)}){returns}"
    if len(text) > _WIDTH:
        rows = "".join(f"    {each},\n" for each in _parameters(arguments))
        text = f"{prefix}{name}(\n{rows}){returns}"
    return f"```text\n{text}\n```\n"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters one by one, with `/` and `*` where they stand."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    for each, default in zip(positional, [*defaults, *arguments.defaults], strict=True):
        yield _parameter(each, default)
        if arguments.posonlyargs and each is arguments.posonlyargs[-1]:
            yield "/"
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(parameter) + ("" if default is None else f" = {ast.unparse(default)}")
    return text.replace("'", '"')


def _text(value: object) -> str:
    """Return a docstring as Markdown: sections as lists, indented code as blocks."""
    doc = inspect.getdoc(value) or ""
    pieces = _FIELD.split(doc)
    text = _prose(pieces[0].strip())
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        text += f"\n\n{title}:\n\n{_fields(body)}"
    return text + "\n"


def _prose(text: str) -> str:
    blocks = re.split(r"\n\n(?=    )", text)
    shown = [blocks[0]]
    for block in blocks[1:]:
        code, blank, rest = block.partition("\n\n")
        shown.append(f"```text\n{textwrap.dedent(code)}\n```" + blank + rest)
    return "\n\n".join(shown)


def _fields(body: str) -> str:
    """Return `name: text` paragraphs as a list, other text as it is."""
    lines = textwrap.dedent(body.strip("\n")).strip().split("\n")
    if not _NAMED.match(lines[0]):
        return "\n".join(lines)
    shown = []
    for line in lines:
        names, _, text = line.partition(":")
        if _NAMED.match(line):
            shown.append(f"- {', '.join(f'`{name.strip()}`' for name in names.split(','))}:{text}")
        else:
            shown.append(f"  {line.strip()}")
    return "\n".join(shown)


if __name__ == "__main__":
    sys.stdout.write(page())
