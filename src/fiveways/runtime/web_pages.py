"""Files for browsers: the dashboard, the JavaScript client, the chart library, and the pipeline's report.

All of them are read and compressed once, in a thread, and then answered from memory. Each client that does not read its
answer has a copy of it there, so that there is a bound for all of them together. What a page may do is said in its
headers: nothing is loaded from elsewhere, no script runs that is not one of these files, nobody may put it in a frame.
"""

import asyncio
import base64
import gzip
import hashlib
import importlib.util
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from fiveways.hub.refusal import Refusal
from fiveways.hub.traits import Credentials
from fiveways.runtime.http_authentication import read_credentials, refusal_response
from fiveways.runtime.http_responses import METHOD_NOT_ALLOWED
from fiveways.settings.sections import Settings
from fiveways.transports.http import Request, Response

WEB: Final = Path(__file__).parents[1] / "web"
CLIENT: Final = "/fiveways.js"
CLIENT_TYPES: Final = "/fiveways.d.ts"
CHARTS: Final = "/plotly.js"
REPORT: Final = "/report"
_FOLDER: Final = "dashboard"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ts": "application/typescript; charset=utf-8",
}
_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_REVALIDATE: Final = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
_IMMUTABLE: Final = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The report is one file with a script of its own, of which it says the digest itself. In a sandbox it is no page of
# ours: whatever became of the file, it reaches neither the hub nor what the dashboard keeps.
_REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE: Final = re.compile(rb"createElement\(\"style\"\);\w+\.id=\"\w+\",\w+\.textContent='([^'\\]*)'")
"""A style sheet that the chart library puts into every page."""
_VERSION: Final = b"{version}"
"""Stands in the dashboard for the version of the chart library, by whose name it may be kept for ever."""
_MAX_FILE_SIZE: Final = 64 << 20
"""Bytes of the largest file that is served."""
_MAX_UNREAD: Final = 64 << 20
"""Bytes that clients may have unread, before nobody gets another page."""
_TOO_MANY_UNREAD: Final = Response(
    503, b"others have to read their answers first; try again soon\n", headers={"Retry-After": "5"}
)
_NO_REPORT: Final = (
    "there is no report; with OUT for dashboard.tables, `fiveways report --tables OUT -o OUT/report.html` makes it"
)
_REPORT_DENIED: Final = "the report is for those who may call hub.results"


class Page(NamedTuple):
    """One file, ready to be sent."""

    content: bytes
    """Compressed."""
    content_type: str
    etag: str
    """Another text for another content."""
    headers: Mapping[str, str]


class Pages:
    """What is served to browsers."""

    def __init__(
        self,
        settings: Settings,
        welcome: Callable[[], str],
        may_call: Callable[[Credentials, str], bool],
        unread: Callable[[], int],
    ) -> None:
        """Serve what the settings allow.

        `welcome` is for those who read no HTML, `may_call` knows their rights, and `unread` how many bytes of answers
        wait for those who do not read them.
        """
        self._welcome = welcome
        self._may_call = may_call
        self._unread = unread
        self._known: dict[str, Page] = {}
        self._report: tuple[tuple[int, int], Page] | None = None
        self._reading = asyncio.Lock()
        self._unpacking = asyncio.Lock()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Let new settings hold."""
        dashboard = settings.dashboard
        self._tables = Path(dashboard.tables) if dashboard.tables else None
        self._is_enabled = dashboard.enabled
        self._builders: dict[str, Callable[[], Page]] = {
            path: partial(_client, path) for path in (CLIENT, CLIENT_TYPES)
        }
        if dashboard.enabled:
            self._builders |= {CHARTS: _charts, "/": _dashboard}
            for path in sorted((WEB / _FOLDER).iterdir()):
                if path.suffix in _TYPES:
                    self._builders[f"/{_FOLDER}/{path.name}"] = _maker(path)

    def answer(self, request: Request) -> Response | Awaitable[Response] | None:
        """Answer a request for a page; None if it is for none."""
        path = request.path
        if path not in self._builders and path != "/" and (path != REPORT or not self._is_enabled):
            return None
        if request.method not in {"GET", "HEAD"}:
            return METHOD_NOT_ALLOWED
        if path == "/" and not (self._is_enabled and "text/html" in request.headers.get("accept", "")):
            return Response(200, self._welcome().encode(), headers={"Vary": "Accept"})
        if path == REPORT:
            return self._show_report(request)
        return self._show(request)

    async def _show(self, request: Request) -> Response:
        path = request.path
        async with self._reading:
            if path not in self._known:
                self._known[path] = await asyncio.to_thread(self._builders[path])
        page = self._known[path]
        # Whoever names another version, or none, must not keep what it gets.
        is_lasting = path == CHARTS and request.query == f"v={page.etag}"
        return await self._respond(request, page, _IMMUTABLE if is_lasting else _REVALIDATE)

    async def _show_report(self, request: Request) -> Response:
        try:
            if not self._may_call(read_credentials(request), "hub.results"):
                return Response(403, f"{_REPORT_DENIED}\n".encode())
        except Refusal as refusal:
            return refusal_response(refusal)
        if self._tables is None:
            return Response(404, f"{_NO_REPORT}\n".encode())
        path = self._tables / "report.html"
        async with self._reading:
            before = self._report
            try:
                self._report = await asyncio.to_thread(_report, path, before)
            except OSError:
                self._report = None
            found = self._report
        if found is None:
            return Response(404, f"{_NO_REPORT}\n".encode())
        return await self._respond(request, found[1], _REVALIDATE)

    async def _respond(self, request: Request, page: Page, keeping: Mapping[str, str]) -> Response:
        headers = {"ETag": f'W/"{page.etag}"', **keeping, **page.headers}
        if request.path == "/":
            headers["Vary"] = "Accept, Accept-Encoding"
        if _matches_etag(request.headers.get("if-none-match", ""), page.etag):
            return Response(304, b"", headers=headers)
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            if self._unread() > _MAX_UNREAD:
                return _TOO_MANY_UNREAD
            return Response(200, page.content, page.content_type, {**headers, "Content-Encoding": "gzip"})
        # One after the other: each is written, and counted, before the next one is unpacked.
        async with self._unpacking:
            if self._unread() > _MAX_UNREAD:
                return _TOO_MANY_UNREAD
            return Response(200, await asyncio.to_thread(gzip.decompress, page.content), page.content_type, headers)


def _matches_etag(asked: str, tag: str) -> bool:
    """Say whether a client that has these has the file already."""
    return any(each.strip().removeprefix("W/") in {f'"{tag}"', "*"} for each in asked.split(","))


def _accepts_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, options = each.partition(";")
        if name.strip() in {"gzip", "*"}:
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", options) is None
    return False


# How each page is made. All of this runs in a thread.


def _page(data: bytes, kind: str, headers: Mapping[str, str] = MappingProxyType({})) -> Page:
    tag = hashlib.blake2b(data, digest_size=9).hexdigest()
    return Page(gzip.compress(data, 6, mtime=0), kind, tag, {**_SAFE, **headers})


def _maker(path: Path) -> Callable[[], Page]:
    return lambda: _page(path.read_bytes(), _TYPES[path.suffix])


def _client(path: str) -> Page:
    # Pages of other origins may load it too.
    file = WEB / path.removeprefix("/")
    return _page(file.read_bytes(), _TYPES[file.suffix], {"Access-Control-Allow-Origin": "*"})


def _charts() -> Page:
    return _page(_plotly(), _TYPES[".js"])


def _dashboard() -> Page:
    charts = _plotly()
    version = hashlib.blake2b(charts, digest_size=9).hexdigest()
    digests = (base64.b64encode(hashlib.sha256(each).digest()).decode() for each in _INLINE.findall(charts))
    policy = _POLICY.format(styles="".join(f" 'sha256-{each}'" for each in digests))
    data = (WEB / "index.html").read_bytes().replace(_VERSION, version.encode())
    return _page(data, _TYPES[".html"], {"Content-Security-Policy": policy})


def _plotly() -> bytes:
    """Return the chart library out of its package, whose Python nobody needs here."""
    spec = importlib.util.find_spec("plotly")
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    found = (Path(folder) / "package_data" / "plotly.min.js" for folder in folders)
    return next((path.read_bytes() for path in found if path.is_file()), b"")


def _report(path: Path, known: tuple[tuple[int, int], Page] | None) -> tuple[tuple[int, int], Page] | None:
    """Return the report as it is now, with what tells whether it is another one later."""
    there = path.stat()
    state = (there.st_mtime_ns, there.st_size)
    if known is not None and known[0] == state:
        return known
    if there.st_size > _MAX_FILE_SIZE:
        return None
    return state, _page(path.read_bytes(), _TYPES[".html"], {"Content-Security-Policy": _REPORT_POLICY})
