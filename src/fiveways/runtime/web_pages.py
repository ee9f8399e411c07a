"""Files for browsers: dashboard, JavaScript client, chart library and the pipeline's report.

Each file is read and compressed once, in a thread, and then served from memory. Each unread response holds a copy in
memory, so the total is limited. Response headers restrict a page: it loads nothing from elsewhere, runs only the
scripts of these files, and cannot be framed.
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
# The report is one file with its own script and the digest of that. The sandbox gives it another origin: even a
# manipulated file reaches neither the hub nor the dashboard's storage.
_REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE: Final = re.compile(rb"createElement\(\"style\"\);\w+\.id=\"\w+\",\w+\.textContent='([^'\\]*)'")
"""A style sheet that the chart library inserts into every page."""
_VERSION: Final = b"{version}"
"""A placeholder in the dashboard for the version of the chart library, which browsers cache for a year."""
_MAX_FILE_SIZE: Final = 64 << 20
"""Bytes of the largest file that is served."""
_MAX_UNREAD: Final = 64 << 20
"""Unread bytes of all clients above which no page is served."""
_TOO_MANY_UNREAD: Final = Response(503, b"too many unread responses; try again soon\n", headers={"Retry-After": "5"})
_NO_REPORT: Final = (
    "there is no report; set dashboard.tables to OUT and run `fiveways report --tables OUT -o OUT/report.html`"
)
_REPORT_DENIED: Final = "the report needs the permission to call hub.results"


class Page(NamedTuple):
    """One file, ready to be sent."""

    content: bytes
    """Compressed by gzip."""
    content_type: str
    etag: str
    """A hash of the content."""
    headers: Mapping[str, str]


class Pages:
    """The pages that the settings enable."""

    def __init__(
        self,
        settings: Settings,
        welcome: Callable[[], str],
        may_call: Callable[[Credentials, str], bool],
        unread: Callable[[], int],
    ) -> None:
        """Serve the pages that the settings enable.

        `welcome` returns the page for clients without HTML, `may_call` checks a permission, and `unread` returns the
        number of response bytes that clients have not read.
        """
        self._welcome = welcome
        self._may_call = may_call
        self._unread = unread
        self._pages: dict[str, Page] = {}
        self._report: tuple[tuple[int, int], Page] | None = None
        self._reading = asyncio.Lock()
        self._unpacking = asyncio.Lock()
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Apply new settings."""
        dashboard = settings.dashboard
        self._tables = Path(dashboard.tables) if dashboard.tables else None
        self._is_enabled = dashboard.enabled
        self._builders: dict[str, Callable[[], Page]] = {
            path: partial(_client_builder, path) for path in (CLIENT, CLIENT_TYPES)
        }
        if dashboard.enabled:
            self._builders |= {CHARTS: _charts, "/": _dashboard}
            for path in sorted((WEB / _FOLDER).iterdir()):
                if path.suffix in _TYPES:
                    self._builders[f"/{_FOLDER}/{path.name}"] = _file_builder(path)

    def answer(self, request: Request) -> Response | Awaitable[Response] | None:
        """Answer a request for a page; None if its path is none."""
        path = request.path
        if path not in self._builders and path != "/" and (path != REPORT or not self._is_enabled):
            return None
        if request.method not in {"GET", "HEAD"}:
            return METHOD_NOT_ALLOWED
        if path == "/" and not (self._is_enabled and "text/html" in request.headers.get("accept", "")):
            return Response(200, self._welcome().encode(), headers={"Vary": "Accept"})
        if path == REPORT:
            return self._report_response(request)
        return self._page_response(request)

    async def _page_response(self, request: Request) -> Response:
        path = request.path
        async with self._reading:
            if path not in self._pages:
                self._pages[path] = await asyncio.to_thread(self._builders[path])
        page = self._pages[path]
        # A request for another version, or none, must not be cached.
        is_versioned = path == CHARTS and request.query == f"v={page.etag}"
        return await self._respond(request, page, _IMMUTABLE if is_versioned else _REVALIDATE)

    async def _report_response(self, request: Request) -> Response:
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
            report = self._report
        if report is None:
            return Response(404, f"{_NO_REPORT}\n".encode())
        return await self._respond(request, report[1], _REVALIDATE)

    async def _respond(self, request: Request, page: Page, cache_headers: Mapping[str, str]) -> Response:
        headers = {"ETag": f'W/"{page.etag}"', **cache_headers, **page.headers}
        if request.path == "/":
            headers["Vary"] = "Accept, Accept-Encoding"
        if _matches_etag(request.headers.get("if-none-match", ""), page.etag):
            return Response(304, b"", headers=headers)
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            if self._unread() > _MAX_UNREAD:
                return _TOO_MANY_UNREAD
            return Response(200, page.content, page.content_type, {**headers, "Content-Encoding": "gzip"})
        # One at a time: each is written and counted before the next one is unpacked.
        async with self._unpacking:
            if self._unread() > _MAX_UNREAD:
                return _TOO_MANY_UNREAD
            return Response(200, await asyncio.to_thread(gzip.decompress, page.content), page.content_type, headers)


def _matches_etag(if_none_match: str, tag: str) -> bool:
    """Return whether the client already has the file."""
    return any(field.strip().removeprefix("W/") in {f'"{tag}"', "*"} for field in if_none_match.split(","))


def _accepts_gzip(accepted: str) -> bool:
    for field in accepted.lower().split(","):
        name, _, options = field.partition(";")
        if name.strip() in {"gzip", "*"}:
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", options) is None
    return False


# Builders of pages, which run in a thread.


def _page(data: bytes, kind: str, headers: Mapping[str, str] = MappingProxyType({})) -> Page:
    tag = hashlib.blake2b(data, digest_size=9).hexdigest()
    return Page(gzip.compress(data, 6, mtime=0), kind, tag, {**_SAFE, **headers})


def _file_builder(path: Path) -> Callable[[], Page]:
    return lambda: _page(path.read_bytes(), _TYPES[path.suffix])


def _client_builder(path: str) -> Page:
    # Pages of other origins may load the client.
    file = WEB / path.removeprefix("/")
    return _page(file.read_bytes(), _TYPES[file.suffix], {"Access-Control-Allow-Origin": "*"})


def _charts() -> Page:
    return _page(_plotly(), _TYPES[".js"])


def _dashboard() -> Page:
    charts = _plotly()
    version = hashlib.blake2b(charts, digest_size=9).hexdigest()
    digests = (base64.b64encode(hashlib.sha256(style).digest()).decode() for style in _INLINE.findall(charts))
    policy = _POLICY.format(styles="".join(f" 'sha256-{digest}'" for digest in digests))
    data = (WEB / "index.html").read_bytes().replace(_VERSION, version.encode())
    return _page(data, _TYPES[".html"], {"Content-Security-Policy": policy})


def _plotly() -> bytes:
    """Return the chart library from its Python package."""
    spec = importlib.util.find_spec("plotly")
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    report = (Path(folder) / "package_data" / "plotly.min.js" for folder in folders)
    return next((path.read_bytes() for path in report if path.is_file()), b"")


def _report(path: Path, previous: tuple[tuple[int, int], Page] | None) -> tuple[tuple[int, int], Page] | None:
    """Return the report and its file state; `previous` if that is unchanged."""
    status = path.stat()
    state = (status.st_mtime_ns, status.st_size)
    if previous is not None and previous[0] == state:
        return previous
    if status.st_size > _MAX_FILE_SIZE:
        return None
    return state, _page(path.read_bytes(), _TYPES[".html"], {"Content-Security-Policy": _REPORT_POLICY})
