"""What can be set, as a page and as a file: made from the texts below the keys, wherever those are."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, get_type_hints

import msgspec

from fiveways.settings.load import SECTIONS, LoadedSettings
from fiveways.settings.sections import IdentitySettings, Secret
from fiveways.settings.values import describe_type

_WIDTH = 116


class SettingDoc(NamedTuple):
    """One setting."""

    name: str
    kind: object
    default: object
    doc: str


def documented_settings(section: type) -> list[SettingDoc]:
    """Return the settings of a section, in order."""
    docs: dict[str, str] = {}
    for each in reversed(section.__mro__):
        docs |= dict(_field_docs(each)) if dataclasses.is_dataclass(each) else {}
    hints = get_type_hints(section, include_extras=True)
    return [
        SettingDoc(each.name, hints[each.name], _default(each), docs.get(each.name, ""))
        for each in dataclasses.fields(section)
    ]


def _default(each: "dataclasses.Field[object]") -> object:
    if each.default_factory is not dataclasses.MISSING:
        return each.default_factory()
    return None if each.default is dataclasses.MISSING else each.default


def _field_docs(owner: type) -> Iterator[tuple[str, str]]:
    """Return the text below each field that has one."""
    tree = ast.parse(inspect.getsource(owner))
    for field, text in pairwise(next(node for node in tree.body if isinstance(node, ast.ClassDef)).body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(doc))):
                yield name, " ".join(doc.split())
            case _:
                pass


def format_toml(value: object) -> str:
    """Return a value as TOML; secrets are not shown."""
    match value:
        case Secret():
            return '"***"' if value else '""'
        case Mapping():
            items = ", ".join(f"{format_toml(key)} = {format_toml(item)}" for key, item in value.items())
            return f"{{ {items} }}" if items else "{}"
        case list() | tuple():
            return f"[{', '.join(map(format_toml, value))}]"
        case IdentitySettings():
            items = ", ".join(
                f"{each.name} = {format_toml(getattr(value, each.name))}"
                for each in documented_settings(IdentitySettings)
            )
            return f"{{ {items} }}"
        case _:
            return msgspec.json.encode(value).decode()


def render_toml(loaded: LoadedSettings, *, docs: bool = False) -> str:
    """Return all settings as a file that says where each one came from, and with `docs` what it means."""
    lines: list[str] = []
    for section, kind in SECTIONS.items():
        about = "\n".join(f"# {line}" for line in (inspect.getdoc(kind) or "").splitlines() if line)
        lines += [about if docs else "", f"[{section}]"][not docs and not lines :]
        values = getattr(loaded.settings, section)
        for each in documented_settings(kind):
            place = loaded.locations.get(f"{section}.{each.name}")
            if docs:
                lines += textwrap.wrap(each.doc, _WIDTH, initial_indent="# ", subsequent_indent="# ")
            origin = f"  # {place}" if place is not None else ""
            lines.append(f"{each.name} = {format_toml(getattr(values, each.name))}{origin}")
        lines += [""] * docs
    return "\n".join(lines)


def render_page() -> str:
    """Return the reference, in Markdown."""
    lines = [_PAGE_HEADER]
    for section, kind in SECTIONS.items():
        lines += [f"## [{section}]\n", f"{inspect.getdoc(kind)}\n", *_table_lines(kind, section), ""]
        if section == "auth":
            lines += [
                "### [[auth.identity]]\n",
                f"{inspect.getdoc(IdentitySettings)}\n",
                *_table_lines(IdentitySettings),
                "",
            ]
    return "\n".join(lines)


def _table_lines(kind: type, section: str = "") -> Iterator[str]:
    variable = f"; variables begin with `FIVEWAYS_{section.upper()}_`" if section else ""
    yield f"| key{variable} | is | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for each in documented_settings(kind):
        default = "" if each.default is None else f"`{format_toml(each.default)}`"
        yield f"| `{each.name}` | {describe_type(each.kind)} | {default} | {each.doc} |"


_PAGE_HEADER = """# Configuration

A hub runs without any. `fiveways serve` then listens on this machine alone, and lets everybody in who is on it.

    fiveways config show --docs > fiveways.toml   writes a file with every setting and its meaning, to begin with
    fiveways config check fiveways.toml           says what is wrong with a file, and on which line
    fiveways config show fiveways.toml            shows all settings, and where each one comes from
    fiveways serve --config fiveways.toml --port 7600

Flags win over variables, variables over the file, the file over the defaults below. A variable is named after section
and key: `FIVEWAYS_SERVER_PORT=7600`. Lists may be written with commas, as in
`FIVEWAYS_SERVER_ORIGINS=https://a.example,https://b.example`, tables as in TOML. `--set log.level=debug` is a flag for
any setting. What is misspelled or out of bounds is refused, with its line. On HUP a running hub reads everything again,
and keeps what it has if the new settings are bad; `[app]`, `[auth]`, `[calls]`, `[dashboard]`, `[metrics]`
and `[topics]` hold at once, changes of the other sections wait for the next start, and the log names them.

A hub that others can reach needs somebody to let in:

    [server]
    host = "0.0.0.0"
    hosts = ["hub.example.com"]

    [[auth.identity]]
    name = "dashboard"
    token_file = "dashboard.token"
    offer = []
    publish = ["ui.*"]

This page is made from the code by `python -m fiveways.settings.docs`.
"""

if __name__ == "__main__":
    print(render_page(), end="")  # noqa: T201
