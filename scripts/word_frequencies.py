"""Print how often the words of plain technical English occur in docstrings, comments and documentation.

The table has one row for each source of text of Fiveways and one for each package that is named, and three columns:
`what` and its forms, `who` and its forms, and technical nouns, each per 1,000 words. Code, links and directives such as
`noqa` are not counted. The exit code is 1 if a row of Fiveways is beyond a limit.

    python scripts/word_frequencies.py urllib3 nats
    python scripts/word_frequencies.py --files src/fiveways/hub docs
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CODE: Final = ("src", "tests", "chaos", "fuzz", "benchmarks", "examples", "scripts")
WHAT: Final = frozenset({"what", "whatever"})
WHO: Final = frozenset({"who", "whom", "whose", "whoever"})
NOUNS: Final = frozenset(
    """
    acknowledgement allocation api attachment authentication authorization backend backlog backoff backpressure
    bandwidth batch broker buffer cache callback callee caller certificate checkpoint checksum cluster codec compaction
    concurrency configuration connection context coroutine correlation credential deadline decoder deduplication
    delivery descriptor dispatcher encoder encoding endpoint exception executor fallback fanout fastpath fixture
    fragment frame gateway guarantee handler handshake header heartbeat histogram identifier identity increment
    iteration iterator job keepalive latency lease listener loop metadata metric middleware namespace outbox overflow
    overhead packet parser partition payload percentile permission pipeline policy poll protocol proxy publication
    publisher queue quota receiver reconnect reconnection redaction redelivery registration registry regression replay
    replica request response retention retransmission retry route router routing runtime schema segment sender
    serializer server session snapshot socket spec specification stack stream subprotocol subscriber subscription
    syntax throughput timeout timer timestamp token tombstone topic transaction transport traversal tuple validation
    watermark websocket wildcard worker wrapper
    """.split()  # noqa: SIM905  a list would have a line for each
)
"""Terms of the field, narrower than the words of everyday speech such as call, message or event; plurals count too."""
MAX_WHAT: Final = 2.0
MAX_WHO: Final = 1.0
MIN_NOUNS: Final = 40.0

_NOT_PROSE: Final = re.compile(
    r"```.*?```|``[^`]*``|`[^`]*`|<[^>\n]*>|\]\([^)]*\)|https?://\S+|^\s*>>>.*$|^\s{4,}.*::.*$",
    re.DOTALL | re.MULTILINE,
)
_DIRECTIVE: Final = re.compile(r"#\s*(noqa|type:|pragma|fmt:|ruff:|pylint|mypy:|!)")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z']*")


@dataclass
class Counts:
    """Words of one source of text."""

    words: int = 0
    what: int = 0
    who: int = 0
    nouns: int = 0

    def add(self, texts: Iterable[str]) -> "Counts":
        """Count the prose of these texts."""
        for text in texts:
            for match in _WORD.finditer(_NOT_PROSE.sub(" ", text)):
                word = match[0].lower().removesuffix("'s")
                self.words += 1
                self.what += word in WHAT
                self.who += word in WHO
                self.nouns += bool(NOUNS & {word, word.removesuffix("s"), word.removesuffix("es")}) or (
                    word.endswith("ies") and f"{word[:-3]}y" in NOUNS
                )
        return self

    def per_thousand(self, count: int) -> float:
        """Return the frequency of these words."""
        return 1000 * count / max(1, self.words)

    @property
    def is_plain(self) -> bool:
        """Whether the text is within the limits."""
        return (
            self.per_thousand(self.what) < MAX_WHAT
            and self.per_thousand(self.who) < MAX_WHO
            and self.per_thousand(self.nouns) > MIN_NOUNS
        )

    def row(self, label: str) -> str:
        """Return a line of the table."""
        figures = (self.per_thousand(count) for count in (self.what, self.who, self.nouns))
        return f"{label:44}{self.words:9}" + "".join(f"{figure:10.2f}" for figure in figures)


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            match statement:
                case ast.Expr(ast.Constant(str(text))):
                    yield text


def comments(source: str) -> Iterator[str]:
    """Yield the comments without the directives to tools."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield token.string.lstrip("# ")


def python_files(*folders: Path) -> list[Path]:
    """Return the Python files of these folders, or the files themselves."""
    found = (folder.rglob("*.py") if folder.is_dir() else [folder] for folder in folders)
    return sorted(path for paths in found for path in paths if not path.name.endswith("_pb2.py"))


def count_python(paths: Iterable[Path]) -> tuple[Counts, Counts]:
    """Return the counts of docstrings and of comments."""
    in_docstrings, in_comments = Counts(), Counts()
    for path in paths:
        source = path.read_text(encoding="utf-8")
        in_docstrings.add(docstrings(source))
        in_comments.add(comments(source))
    return in_docstrings, in_comments


def pages(*folders: Path) -> list[str]:
    """Return the text of all Markdown pages in these folders."""
    return [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.md"))]


def package_folder(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"word_frequencies: unknown package {name}")
    return Path(spec.submodule_search_locations[0])


def own_rows() -> list[tuple[str, Counts]]:
    """Return the sources of text of Fiveways."""
    rows = []
    for label, folders in (("src", CODE[:1]), ("tests and tools", CODE[1:])):
        in_docstrings, in_comments = count_python(python_files(*(ROOT / folder for folder in folders)))
        rows += [(f"fiveways: docstrings, {label}", in_docstrings), (f"fiveways: comments, {label}", in_comments)]
    top = Counts().add(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.md")))
    documentation = top.add(pages(ROOT / "docs", ROOT / "src", ROOT / "benchmarks"))
    return [*rows, ("fiveways: documentation", documentation)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="installed packages to compare with, or with --files: files")
    parser.add_argument("--files", action="store_true", help="a row for each of these files or folders")
    options = parser.parse_args()
    print(f"{'per 1,000 words':44}{'words':>9}{'what':>10}{'who':>10}{'nouns':>10}")
    if options.files:
        for name in options.packages:
            path = Path(name)
            in_docstrings, in_comments = count_python(python_files(path) if path.suffix != ".md" else [])
            text = [path.read_text(encoding="utf-8")] if path.suffix == ".md" else pages(path)
            for kind, counts in (
                ("docstrings", in_docstrings),
                ("comments", in_comments),
                ("pages", Counts().add(text)),
            ):
                if counts.words:
                    print(counts.row(f"{name}: {kind}"[-43:]))
        return 0
    rows = own_rows()
    for label, counts in rows:
        print(counts.row(label) + ("" if counts.is_plain else "  beyond the limits"))
    for package in options.packages:
        in_docstrings, in_comments = count_python(python_files(package_folder(package)))
        print(in_docstrings.row(f"{package}: docstrings"))
        print(in_comments.row(f"{package}: comments"))
    print(f"{'limits':53}{f'< {MAX_WHAT:g}':>10}{f'< {MAX_WHO:g}':>10}{f'> {MIN_NOUNS:g}':>10}")
    return 0 if all(counts.is_plain for _, counts in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
