"""A query looked at before Spark starts: the tables that it names, and in simple queries the columns.

This is no parser of SQL. It judges only names whose meaning is certain, and leaves all others to Spark: a query that
Spark would answer must never be refused here.
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
"""Suggestions."""
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
"""How a statement begins that reads only what it names."""
_ENDS: Final = {"", ";", "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset"}
"""What may stand behind the only table of a simple query."""
_WORD_LIST: Final = """
    all and anti any as between both by case cross current_date current_time current_timestamp distinct else end
    except exists false filter first following for from full group having in inner intersect interval into is join
    last lateral leading left like limit match_recognize minus natural not null nulls offset on only or order outer
    over pivot preceding qualify range recursive right rlike rows select semi set some stream table tablesample then
    trailing true union unnest unpivot using values view when where window with within localtime localtimestamp
    session_user user
"""
_KEYWORDS: Final = frozenset(_WORD_LIST.split())
"""Words that may stand where a name does, and are no name of a table or column there."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a quoted name, a text, a number or a sign."""

    kind: str
    text: str

    @property
    def lower(self) -> str:
        """The word as keywords are compared; nothing for what is quoted."""
        return self.text.lower() if self.kind in {"word", "sign"} else ""

    @property
    def identifier(self) -> str:
        """The name that this is, if it can be one."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" and self.lower not in _KEYWORDS else ""


_END_TOKEN: Final = Token("end", "")


def read_table_columns(out: Path) -> TableColumns:
    """Return the tables of a directory; PipelineError if it has none."""
    if not out.exists():
        raise PipelineError(f"there is no directory {out}; `fiveways pipeline run --out {out}` makes tables in it")
    if not out.is_dir():
        raise PipelineError(f"{out} is no directory")
    if not (out / STATE_FILE).is_file():
        raise PipelineError(f"{out} has no tables; `fiveways pipeline run --out {out}` makes them")
    found = {}
    for folder in sorted(out.iterdir()):
        if (
            folder.is_dir()
            and not folder.name.startswith((".", "_"))
            and (paths := sorted(folder.glob(f"*{PARQUET_SUFFIX}")))
        ):
            try:
                found[folder.name] = parquet.read_schema(paths[0]).names
            except (OSError, ArrowException) as exc:
                raise PipelineError(f"{paths[0]} cannot be read: {exc}") from exc
    return found


def check_query(query: str, tables: TableColumns, where: Path) -> None:
    """Raise PipelineError if a query names a table, or in a simple case a column, that is certainly not there."""
    tokens = list(_tokenize(query))
    if any(token.kind == "comment" and "/*" in token.text[2:] for token in tokens):
        return  # a comment in a comment: where it ends is for Spark to say
    tokens = [token for token in tokens if token.kind != "comment"]
    if not tokens or tokens[0].lower not in _QUERIES or ("|", ">") in pairwise(token.text for token in tokens):
        return  # another statement, or one in pipes: these have rules of their own
    known = {name.lower() for name in tables} | _defined_names(tokens)
    for name in _referenced_tables(tokens):
        if name.lower() not in known:
            raise PipelineError(missing_table_message(name, tables, where))
    _check_columns(tokens, tables)


def missing_table_message(name: str, tables: TableColumns, where: Path | str) -> str:
    """Return that a table is not there, in a sentence."""
    hint = suggest_names(name, tables) or "; `fiveways pipeline tables` lists them"
    return f"no table {name!r} in {where}{hint}"


def missing_column_message(name: str, columns: Iterable[str], table: str = "") -> str:
    """Return that a column is not there, in a sentence."""
    if table:
        hint = suggest_names(name, columns) or f"; `fiveways pipeline tables {table}` lists them"
        return f"no column {name!r} in {table}{hint}"
    listed = ", ".join(columns := list(columns))
    return f"no column {name!r}{suggest_names(name, columns) or (f'; there are {listed}' if listed else '')}"


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return which names were perhaps meant, as the end of a sentence."""
    lower = {each.lower(): each for each in known}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, _MAX_SUGGESTIONS)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _tokenize(query: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(query):
        kind = str(match.lastgroup)
        if kind != "space":
            yield Token(kind, match.group())


def _token_at(tokens: Sequence[Token], place: int) -> Token:
    return tokens[place] if 0 <= place < len(tokens) else _END_TOKEN


def _defined_names(tokens: Sequence[Token]) -> set[str]:
    """Return all names that the query may give to something: WITH x AS (...), WITH x (a, b) AS (...), and aliases."""
    found = set()
    for place, token in enumerate(tokens):
        if token.lower == "as":
            found.add((_token_at(tokens, place + 1).identifier or "").lower())
            back = place - 1
            if _token_at(tokens, back).text == ")":
                while back > 0 and _token_at(tokens, back).text != "(":
                    back -= 1
                back -= 1
            found.add((_token_at(tokens, back).identifier or "").lower())
    return found


def _referenced_tables(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the names right behind FROM and JOIN that stand for a table by themselves."""
    groups: list[str] = []
    """Of each open bracket, the word behind it."""
    for place, token in enumerate(tokens):
        if token.text == "(":
            groups.append(_token_at(tokens, place + 1).lower)
        elif token.text == ")" and groups:
            groups.pop()
        is_from = token.lower == "from" and (not groups or groups[-1] in _QUERIES)
        # `extract(year from x)` has a bracket of its own; `x is distinct from y` has none.
        is_from = is_from and _token_at(tokens, place - 1).lower != "distinct"
        if (is_from or token.lower == "join") and _token_at(tokens, place - 1).text != ".":
            name, behind = _token_at(tokens, place + 1), _token_at(tokens, place + 2).text
            if name.identifier and behind not in {"(", "."}:
                yield name.identifier


def _check_columns(tokens: Sequence[Token], tables: TableColumns) -> None:
    """Check `select a, b as c, count(d) from t ...`: whatever is more than that is left to Spark."""
    if tokens[0].lower != "select" or [token.lower for token in tokens].count("select") != 1:
        return
    end = next((place for place, token in enumerate(tokens) if token.lower == "from"), 0)
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
            # An expression may use the alias of the previous one.
            known.add(item[-1].identifier.lower())


def _column_name(item: Sequence[Token]) -> str:
    """Return the column that an expression consists of, alone or in a function; nothing if that is not certain."""
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
    # Some functions need no brackets, and some columns are there without being told.
    is_hidden = name.identifier.startswith("_") or "__" in name.identifier or name.lower.startswith("current_")
    return "" if is_hidden else name.identifier


def _split_items(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Cut a list at its commas, but for those in brackets."""
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
