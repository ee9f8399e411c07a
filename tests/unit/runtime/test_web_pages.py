"""Files for browsers: access, and response headers."""

import asyncio
import gzip
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fiveways.hub.core import Hub
from fiveways.runtime import web_pages
from fiveways.runtime.web_pages import WEB, Pages
from fiveways.settings.hub_settings import to_hub_settings
from fiveways.settings.operations import DashboardSettings
from fiveways.settings.sections import AnonymousAccess, AuthSettings, IdentitySettings, Secret, Settings
from fiveways.transports.http import Request, Response
from fiveways.wire.limits import Limits

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
FILES = sorted(f"/dashboard/{path.name}" for path in (WEB / "dashboard").iterdir())


def request(
    path: str = "/", method: str = "GET", *, query: str = "", is_loopback: bool = True, **headers: str
) -> Request:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Request(method, path, query, named, b"", "127.0.0.1", is_loopback)


def settings(*, auth: AuthSettings | None = None, **dashboard: Any) -> Settings:  # noqa: ANN401  the options of DashboardSettings
    return Settings(dashboard=DashboardSettings(**dashboard), auth=auth or AuthSettings())


def hub_of(hub_settings: Settings) -> Hub:
    return Hub(Random(1), Limits(), to_hub_settings(hub_settings))


def create_pages(
    hub_settings: Settings | None = None, hub: Hub | None = None, unread: Callable[[], int] = lambda: 0
) -> Pages:
    hub_settings = hub_settings or Settings()
    admission = (hub or hub_of(hub_settings)).admission
    return Pages(
        hub_settings,
        lambda: "welcome\n",
        lambda credentials, method: admission.may_call(credentials, method, 0.0),
        unread,
    )


async def answer_of(pages: Pages, page_request: Request) -> Response | None:
    answer = pages.answer(page_request)
    if isinstance(answer, Response) or answer is None:
        return answer
    assert isinstance(answer, Coroutine)
    found: Response = await answer
    return found


def ask(page_request: Request, hub_settings: Settings | None = None) -> Response:
    async def run() -> Response | None:
        return await answer_of(create_pages(hub_settings), page_request)

    found = asyncio.run(run())
    assert found is not None
    return found


def policy(response: Response) -> dict[str, str]:
    return dict(each.strip().partition(" ")[::2] for each in response.headers["Content-Security-Policy"].split(";"))


def test_root_is_html_for_browsers_and_text_for_programs() -> None:
    page = ask(request(accept=HTML))
    assert (page.status, page.content_type) == (200, "text/html; charset=utf-8")
    assert page.body.startswith(b"<!doctype html>")
    for accept in ("", "*/*", "application/json"):
        plain = ask(request(accept=accept))
        assert (plain.body, plain.content_type) == (b"welcome\n", "text/plain; charset=utf-8")
        assert plain.headers["Vary"] == "Accept"
    assert page.headers["Vary"] == "Accept, Accept-Encoding"


def test_without_dashboard_only_the_client_is_served() -> None:
    hub_settings = settings(enabled=False)
    assert ask(request(accept=HTML), hub_settings).body == b"welcome\n"
    for path in ("/fiveways.js", "/fiveways.d.ts"):
        assert ask(request(path), hub_settings).status == 200
    for path in ("/plotly.js", "/report", *FILES):
        assert create_pages(hub_settings).answer(request(path)) is None


@pytest.mark.parametrize(
    "path", ["/nothing", "/dashboard", "/dashboard/", "/dashboard/../index.html", "/index.html", "/web"]
)
def test_other_paths_are_not_served(path: str) -> None:
    assert create_pages().answer(request(path)) is None


@pytest.mark.parametrize("path", ["/", "/fiveways.js", "/report", "/dashboard/main.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(path: str, method: str) -> None:
    refused = ask(request(path, method, accept=HTML))
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/fiveways.js", "/fiveways.d.ts", "/plotly.js", *FILES])
def test_every_file_has_a_type_and_an_etag(path: str) -> None:
    async def run() -> None:
        pages = create_pages()
        whole = await answer_of(pages, request(path, accept=HTML))
        assert whole is not None
        assert whole.headers["X-Content-Type-Options"] == "nosniff"
        assert whole.headers["Referrer-Policy"] == "no-referrer"
        assert whole.headers["Cache-Control"] == "no-cache"
        assert "Content-Encoding" not in whole.headers
        kinds = {"": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        kinds[".ts"] = "application/typescript"
        assert whole.content_type.partition(";")[0] == kinds[Path(path).suffix]
        packed = await answer_of(pages, request(path, accept=HTML, accept_encoding="deflate, gzip;q=0.5"))
        assert packed is not None
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Accept-Encoding" in packed.headers["Vary"]
        assert gzip.decompress(packed.body) == whole.body
        tag = whole.headers["ETag"]
        assert tag == packed.headers["ETag"]
        for etag in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            not_modified = await answer_of(pages, request(path, accept=HTML, if_none_match=etag))
            assert not_modified is not None
            assert (not_modified.status, not_modified.body, not_modified.headers["ETag"]) == (304, b"", tag)
        again = await answer_of(pages, request(path, accept=HTML, if_none_match='"other"'))
        assert again == whole

    asyncio.run(run())


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip; q=0.0", "identity"])
def test_client_without_gzip_gets_plain_bytes(accepted: str) -> None:
    assert "Content-Encoding" not in ask(request("/fiveways.js", accept_encoding=accepted)).headers


def test_dashboard_policy_allows_only_its_own_files() -> None:
    allowed = policy(ask(request(accept=HTML)))
    assert (allowed["default-src"], allowed["script-src"], allowed["connect-src"]) == ("'none'", "'self'", "'self'")
    assert (allowed["frame-ancestors"], allowed["base-uri"], allowed["form-action"]) == ("'none'", "'none'", "'none'")
    assert "unsafe" not in " ".join(allowed.values())
    # The one style sheet of the chart library.
    assert re.fullmatch(r"'self' 'sha256-[\w+/=]{44}'", allowed["style-src"])


def test_dashboard_page_has_no_inline_scripts_or_styles() -> None:
    page = ask(request(accept=HTML)).body.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


def test_every_file_of_the_page_is_served() -> None:
    page = ask(request(accept=HTML)).body.decode()
    named = set(re.findall(r'(?:src|href)="(/[^"#?]*)', page))
    for script in [path for path in FILES if path.endswith(".js")]:
        text = ask(request(script)).body.decode()
        named |= {
            f"/dashboard/{name[2:]}" if name.startswith("./") else name for name in re.findall(r'from "([^"]+)"', text)
        }
    assert {path for path in named if ask(request(path, accept=HTML)).status != 200} == set()
    assert {path for path in FILES if path.endswith(".js")} <= named


def test_versioned_chart_library_is_immutable() -> None:
    page = ask(request(accept=HTML)).body.decode()
    found = re.search(r'src="/plotly\.js\?(v=\w+)"', page)
    assert found is not None
    assert "immutable" in ask(request("/plotly.js", query=found[1])).headers["Cache-Control"]
    for other in ("", "v=", "v=older"):
        assert ask(request("/plotly.js", query=other)).headers["Cache-Control"] == "no-cache"


def test_dashboard_works_without_the_chart_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert policy(ask(request(accept=HTML)))["style-src"] == "'self'"
    assert ask(request("/plotly.js")).body == b""


def test_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        pages = create_pages()
        await asyncio.gather(*(answer_of(pages, request("/dashboard/main.js")) for _ in range(3)))
        monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read again"))
        assert await answer_of(pages, request("/dashboard/main.js")) is not None

    asyncio.run(run())


@pytest.mark.parametrize("accepted", ["", "gzip"])
def test_pages_are_refused_while_too_many_bytes_are_unread(accepted: str) -> None:
    async def run() -> None:
        unread = web_pages._MAX_UNREAD
        pages = create_pages(unread=lambda: unread)
        page_request = request("/plotly.js", accept_encoding=accepted)
        found = await answer_of(pages, page_request)
        assert found is not None
        assert found.status == 200
        unread += 1
        refused = await answer_of(pages, page_request)
        assert refused is not None
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        not_modified = await answer_of(pages, request("/plotly.js", if_none_match=found.headers["ETag"]))
        assert not_modified is not None
        assert not_modified.status == 304
        unread -= 1
        assert await answer_of(pages, page_request) == found

    asyncio.run(run())


def test_files_are_decompressed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    unread, at_once = 0, 0
    unpack = gzip.decompress

    def counting_decompress(data: bytes) -> bytes:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        found = unpack(data)
        at_once -= 1
        return found

    async def run() -> None:
        pages = create_pages(unread=lambda: unread)

        async def client() -> int:
            nonlocal unread
            found = await answer_of(pages, request("/plotly.js"))
            assert found is not None
            unread += len(found.body) if found.status == 200 else 0
            return found.status

        monkeypatch.setattr(web_pages, "_MAX_UNREAD", 10_000_000)
        statuses = await asyncio.gather(*(client() for _ in range(20)))
        assert set(statuses) == {200, 503}
        assert unread < 20_000_000

    monkeypatch.setattr(gzip, "decompress", counting_decompress)
    asyncio.run(run())


# The report.


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "report.html").write_text("<!DOCTYPE html><title>report</title>")
    return tmp_path


def test_report_is_served_in_a_sandbox(out: Path) -> None:
    found = ask(request("/report"), settings(tables=str(out)))
    assert (found.status, found.content_type) == (200, "text/html; charset=utf-8")
    assert found.body == b"<!DOCTYPE html><title>report</title>"
    allowed = policy(found)
    # Without `allow-same-origin`, the report has the origin `null`.
    assert allowed["sandbox"] == "allow-scripts"
    assert (allowed["default-src"], allowed["frame-ancestors"]) == ("'none'", "'none'")
    assert "connect-src" not in allowed


def test_report_changes_with_its_file(out: Path) -> None:
    async def run() -> None:
        pages = create_pages(settings(tables=str(out)))
        first = await answer_of(pages, request("/report"))
        same = await answer_of(pages, request("/report"))
        (out / "report.html").write_text("another one, which is longer than the first was")
        other = await answer_of(pages, request("/report"))
        assert first is not None
        assert other is not None
        assert same == first
        assert other.headers["ETag"] != first.headers["ETag"]
        assert other.body.startswith(b"another one")
        (out / "report.html").unlink()
        gone = await answer_of(pages, request("/report"))
        assert gone is not None
        assert gone.status == 404

    asyncio.run(run())


def test_missing_report_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hub_settings in (settings(), settings(tables=str(tmp_path)), settings(tables=str(tmp_path / "nothing"))):
        found = ask(request("/report"), hub_settings)
        assert (found.status, b"fiveways report" in found.body) == (404, True)
    (tmp_path / "report.html").write_text("long")
    monkeypatch.setattr(web_pages, "_MAX_FILE_SIZE", 3)
    assert ask(request("/report"), settings(tables=str(tmp_path))).status == 404


@pytest.mark.parametrize(
    ("anonymous", "call", "is_loopback", "status"),
    [
        ("loopback", ("*",), True, 200),
        ("loopback", ("*",), False, 403),
        ("always", ("*",), False, 200),
        ("never", ("*",), True, 403),
        ("loopback", ("hub.*",), True, 200),
        ("loopback", ("math.*",), True, 403),
        ("always", (), True, 403),
    ],
)
def test_report_needs_the_permission_for_hub_results(
    out: Path, anonymous: AnonymousAccess, call: tuple[str, ...], is_loopback: bool, status: int
) -> None:
    hub_settings = settings(tables=str(out), auth=AuthSettings(anonymous=anonymous, call=call))
    found = ask(request("/report", is_loopback=is_loopback), hub_settings)
    assert found.status == status
    assert status == 200 or found.body == b"the report needs the permission to call hub.results\n"


def test_token_gives_access_to_the_report(out: Path) -> None:
    some = IdentitySettings("viewer", Secret("sesame"), call=("hub.results",))
    other = IdentitySettings("worker", Secret("open"), call=("math.*",))
    hub_settings = settings(tables=str(out), auth=AuthSettings(anonymous="never", identity=(some, other)))
    found = {
        token: ask(request("/report", authorization=f"Bearer {token}"), hub_settings)
        for token in ("sesame", "open", "x")
    }
    assert {token: each.status for token, each in found.items()} == {"sesame": 200, "open": 403, "x": 401}
    assert found["x"].headers["WWW-Authenticate"] == "Bearer"


def test_new_settings_apply_at_once(out: Path) -> None:
    async def run() -> None:
        hub_settings = settings(tables=str(out))
        hub = hub_of(hub_settings)
        pages = create_pages(hub_settings, hub)
        await answer_of(pages, request("/report"))
        hub.reload(to_hub_settings(replace(hub_settings, auth=AuthSettings(anonymous="never"))))
        refused = await answer_of(pages, request("/report"))
        assert refused is not None
        assert refused.status == 403
        pages.configure(settings(enabled=False))
        assert pages.answer(request("/report")) is None

    asyncio.run(run())
