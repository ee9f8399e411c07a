"""Check of the table names of a query, and in simple queries of the columns, before Spark starts.

This is not an SQL parser. It rejects only names with a certain meaning and leaves all others to Spark: it must never
reject a query that Spark would answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyarrow import ArrowException, parquet

from fiveways.pipeline.errors import PipelineError
from fiveways.pipeline.state import STATE_FILE
from fiveways.pipeline.table_directory import PARQUET_SUFFIX

TableColumns = Mapping[str, Sequence[str]]
"""The columns of each table."""
_MAX_SUGGESTIONS: Final = 3
"""Maximum number of suggested names in an error message."""
_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+ | --(?:\\\n|[^\n])*)
  | (?P<comment>/\*.*?\*/)
  | (?P<text>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d[\w.]*)
  | (?P<word>\w+)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUERIES: Final = {"select", "with", "from", "("}
"""First words of statements that only read."""
_ENDS: Final = {"", ";", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset"}
"""Words that may follow the only table of a simple query."""
_WORD_LIST: Final = """
    all and anti any as between both by case cross current_date current_time current_timestamp distinct else end
    except exists false filter first following for from full group having in inner intersect interval into is join
    last lateral leading left like limit match_recognize minus natural not null nulls offset on only or order outer
    over pivot preceding qualify range recursive right rlike rows select semi set some stream table tablesample then
    trailing true union unnest unpivot using values view when where window with within localtime localtimestamp
    session_user user
"""
_KEYWORDS: Final = frozenset(_WORD_LIST.split())
"""Words that may stand in the place of a table or column, but are not its name."""


@dataclass(frozen=True, slots=True)
class Token:
    """Lexical token: a word, quoted name, text, number or sign."""

    kind: str
    text: str

    @property
    def lower(self) -> str:
        """The word or sign in lower case, to compare with keywords; empty for other kinds."""
        return self.text.lower() if self.kind in {"word", "sign"} else ""

    @property
    def identifier(self) -> str:
        """The name, if the token can be one; else empty."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" and self.lower not in _KEYWORDS else ""


_END_TOKEN: Final = Token("end", "")


def read_table_columns(out: Path) -> TableColumns:
    """Return the columns of all tables in a directory; raise PipelineError if it has no tables."""
    if not out.exists():
        raise PipelineError(f"directory {out} does not exist; create it with `fiveways pipeline run --out {out}`")
    if not out.is_dir():
        raise PipelineError(f"{out} is not a directory")
    if not (out / STATE_FILE).is_file():
        raise PipelineError(f"{out} has no tables; create them with `fiveways pipeline run --out {out}`")
    columns = {}
    for folder in sorted(out.iterdir()):
        if (
            folder.is_dir()
            and not folder.name.startswith((".", "_"))
            and (paths := sorted(folder.glob(f"*{PARQUET_SUFFIX}")))
        ):
            try:
                columns[folder.name] = parquet.read_schema(paths[0]).names
            except (OSError, ArrowException) as exc:
                raise PipelineError(f"cannot read {paths[0]}: {exc}") from exc
    return columns


def check_query(query: str, tables: TableColumns, where: Path) -> None:
    """Raise PipelineError if a query uses a table, or in a simple query a column, that certainly does not exist."""
    tokens = list(_tokenize(query))
    if any(token.kind == "comment" and "/*" in token.text[2:] for token in tokens):
        return  # only Spark knows where a nested comment ends
    tokens = [token for token in tokens if token.kind != "comment"]
    if not tokens or tokens[0].lower not in _QUERIES or ("|", ">") in pairwise(token.text for token in tokens):
        return  # other statements and pipe syntax have other rules
    known = {name.lower() for name in tables} | _defined_names(tokens)
    for name in _referenced_tables(tokens):
        if name.lower() not in known:
            raise PipelineError(missing_table_message(name, tables, where))
    _check_columns(tokens, tables)


def missing_table_message(name: str, tables: TableColumns, where: Path | str) -> str:
    """Return the error text for an unknown table."""
    hint = suggest_names(name, tables) or "; `fiveways pipeline tables` lists them"
    return f"no table {name!r} in {where}{hint}"


def missing_column_message(name: str, columns: Iterable[str], table: str = "") -> str:
    """Return the error text for an unknown column."""
    if table:
        hint = suggest_names(name, columns) or f"; `fiveways pipeline tables {table}` lists them"
        return f"no column {name!r} in {table}{hint}"
    listed = ", ".join(columns := list(columns))
    return f"no column {name!r}{suggest_names(name, columns) or (f'; there are {listed}' if listed else '')}"


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return the end of an error text that suggests similar names; empty if there are none."""
    names = {known_name.lower(): known_name for known_name in known}
    similar = [names[match] for match in get_close_matches(name.lower(), names, _MAX_SUGGESTIONS)]
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


def _tokenize(query: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(query):
        kind = str(match.lastgroup)
        if kind != "space":
            yield Token(kind, match.group())


def _token_at(tokens: Sequence[Token], index: int) -> Token:
    return tokens[index] if 0 <= index < len(tokens) else _END_TOKEN


def _defined_names(tokens: Sequence[Token]) -> set[str]:
    """Return all names that the query may define: WITH x AS (...), WITH x (a, b) AS (...), and aliases."""
    defined = set()
    for index, token in enumerate(tokens):
        if token.lower == "as":
            defined.add((_token_at(tokens, index + 1).identifier or "").lower())
            back = index - 1
            if _token_at(tokens, back).text == ")":
                while back > 0 and _token_at(tokens, back).text != "(":
                    back -= 1
                back -= 1
            defined.add((_token_at(tokens, back).identifier or "").lower())
    return defined


def _referenced_tables(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the names directly after FROM and JOIN that are tables by themselves."""
    groups: list[str] = []
    """The first word in each open bracket."""
    for index, token in enumerate(tokens):
        if token.text == "(":
            groups.append(_token_at(tokens, index + 1).lower)
        elif token.text == ")" and groups:
            groups.pop()
        is_from = token.lower == "from" and (not groups or groups[-1] in _QUERIES)
        # `extract(year from x)` has brackets of its own; `x is distinct from y` has none.
        is_from = is_from and _token_at(tokens, index - 1).lower != "distinct"
        if (is_from or token.lower == "join") and _token_at(tokens, index - 1).text != ".":
            name, behind = _token_at(tokens, index + 1), _token_at(tokens, index + 2).text
            if name.identifier and behind not in {"(", "."}:
                yield name.identifier


def _check_columns(tokens: Sequence[Token], tables: TableColumns) -> None:
    """Check the columns of `select a, b as c, count(d) from t ...`; leave other forms to Spark."""
    if tokens[0].lower != "select" or [token.lower for token in tokens].count("select") != 1:
        return
    end = next((index for index, token in enumerate(tokens) if token.lower == "from"), 0)
    table = _token_at(tokens, end + 1)
    if not end or _token_at(tokens, end + 2).lower not in _ENDS:
        return
    columns = next((names for name, names in tables.items() if name.lower() == table.identifier.lower()), None)
    if columns is None:
        return
    known = {name.lower() for name in columns}
    start = 2 if _token_at(tokens, 1).lower == "distinct" else 1
    for item in _split_items(tokens[start:end]):
        name = _column_name(item)
        if name and name.lower() not in known:
            raise PipelineError(missing_column_message(name, columns, table.identifier))
        if item:
            # An expression may use the alias of an earlier one.
            known.add(item[-1].identifier.lower())


def _column_name(item: Sequence[Token]) -> str:
    """Return the column of an expression `a` or `f(a)`; empty if that is not certain."""
    name = _END_TOKEN
    match item:
        case [only]:
            name = only
        case [column, alias] if alias.identifier:
            name = column
        case [column, word, alias] if word.lower == "as" and alias.identifier:
            name = column
        case [function, Token(text="("), column, Token(text=")"), *_] if function.identifier:
            name = column
    # Some functions need no brackets, and Spark has hidden columns.
    is_hidden = name.identifier.startswith("_") or "__" in name.identifier or name.lower.startswith("current_")
    return "" if is_hidden else name.identifier


def _split_items(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Split a list at its commas outside brackets."""
    item: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.text in {"(", "["}) - (token.text in {")", "]"})
        if token.text == "," and not depth:
            yield item
            item = []
        else:
            item.append(token)
    yield item
