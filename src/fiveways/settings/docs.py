"""Generator for the configuration page and for commented configuration files, from the docstrings of the settings."""

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
    """Name, type, default and documentation of one setting."""

    name: str
    kind: object
    default: object
    doc: str


def documented_settings(section: type) -> list[SettingDoc]:
    """Return the settings of a section in order."""
    docs: dict[str, str] = {}
    for base in reversed(section.__mro__):
        docs |= dict(_field_docs(base)) if dataclasses.is_dataclass(base) else {}
    hints = get_type_hints(section, include_extras=True)
    return [
        SettingDoc(item.name, hints[item.name], _default(item), docs.get(item.name, ""))
        for item in dataclasses.fields(section)
    ]


def _default(item: "dataclasses.Field[object]") -> object:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return None if item.default is dataclasses.MISSING else item.default


def _field_docs(owner: type) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each documented field."""
    tree = ast.parse(inspect.getsource(owner))
    for field, text in pairwise(next(node for node in tree.body if isinstance(node, ast.ClassDef)).body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(doc))):
                yield name, " ".join(doc.split())
            case _:
                pass


def format_toml(value: object) -> str:
    """Return a value as TOML, with secrets redacted."""
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
                f"{setting.name} = {format_toml(getattr(value, setting.name))}"
                for setting in documented_settings(IdentitySettings)
            )
            return f"{{ {items} }}"
        case _:
            return msgspec.json.encode(value).decode()


def render_toml(loaded: LoadedSettings, *, docs: bool = False) -> str:
    """Return all settings as a TOML file with the origin of each value, and with `docs` their documentation."""
    lines: list[str] = []
    for section, kind in SECTIONS.items():
        comment = "\n".join(f"# {line}" for line in (inspect.getdoc(kind) or "").splitlines() if line)
        lines += [comment if docs else "", f"[{section}]"][not docs and not lines :]
        values = getattr(loaded.settings, section)
        for setting in documented_settings(kind):
            location = loaded.locations.get(f"{section}.{setting.name}")
            if docs:
                lines += textwrap.wrap(setting.doc, _WIDTH, initial_indent="# ", subsequent_indent="# ")
            origin = f"  # {location}" if location is not None else ""
            lines.append(f"{setting.name} = {format_toml(getattr(values, setting.name))}{origin}")
        lines += [""] * docs
    return "\n".join(lines)


def render_page() -> str:
    """Return the configuration page in Markdown."""
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
    for setting in documented_settings(kind):
        default = "" if setting.default is None else f"`{format_toml(setting.default)}`"
        yield f"| `{setting.name}` | {describe_type(setting.kind)} | {default} | {setting.doc} |"


_PAGE_HEADER = """# Configuration

A hub runs without configuration. By default, `fiveways serve` listens on this machine only, and admits all local peers.

    fiveways config show --docs > fiveways.toml   writes a file with every setting and its documentation
    fiveways config check fiveways.toml           checks a file; errors have a line number
    fiveways config show fiveways.toml            shows all settings and the origin of each value
    fiveways serve --config fiveways.toml --port 7600

Flags override variables, variables override the file, the file overrides the defaults below. The name of a variable
consists of section and key: `FIVEWAYS_SERVER_PORT=7600`. Lists may be comma-separated, for example
`FIVEWAYS_SERVER_ORIGINS=https://a.example,https://b.example`; tables have TOML syntax. `--set log.level=debug` is a
flag for any setting. Unknown keys and invalid values are errors.

On SIGHUP, a running hub reads all sources again. If the new settings are invalid, it keeps the old ones. Changes in
`[app]`, `[auth]`, `[calls]`, `[dashboard]`, `[metrics]` and `[topics]` take effect at once. Other changed sections need
a restart; the log names them.

A hub that other machines can reach needs an identity:

    [server]
    host = "0.0.0.0"
    hosts = ["hub.example.com"]

    [[auth.identity]]
    name = "dashboard"
    token_file = "dashboard.token"
    offer = []
    publish = ["ui.*"]

This page is generated by `python -m fiveways.settings.docs`.
"""

if __name__ == "__main__":
    print(render_page(), end="")  # noqa: T201
