"""Files for browsers: what is served to whom, and what is said about it in the headers."""

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


def settings(*, auth: AuthSettings | None = None, **dashboard: Any) -> Settings:  # noqa: ANN401  of DashboardSettings
    return Settings(dashboard=DashboardSettings(**dashboard), auth=auth or AuthSettings())


def hub_of(given: Settings) -> Hub:
    return Hub(Random(1), Limits(), to_hub_settings(given))


def made(given: Settings | None = None, hub: Hub | None = None, unread: Callable[[], int] = lambda: 0) -> Pages:
    given = given or Settings()
    gate = (hub or hub_of(given)).admission
    return Pages(given, lambda: "welcome\n", lambda shown, method: gate.may_call(shown, method, 0.0), unread)


async def answered(served: Pages, asked: Request) -> Response | None:
    answer = served.answer(asked)
    if isinstance(answer, Response) or answer is None:
        return answer
    assert isinstance(answer, Coroutine)
    found: Response = await answer
    return found


def ask(asked: Request, given: Settings | None = None) -> Response:
    async def run() -> Response | None:
        return await answered(made(given), asked)

    found = asyncio.run(run())
    assert found is not None
    return found


def policy(response: Response) -> dict[str, str]:
    return dict(each.strip().partition(" ")[::2] for each in response.headers["Content-Security-Policy"].split(";"))


def test_the_root_is_for_people_in_html_and_for_programs_in_plain_text() -> None:
    page = ask(request(accept=HTML))
    assert (page.status, page.content_type) == (200, "text/html; charset=utf-8")
    assert page.body.startswith(b"<!doctype html>")
    for accept in ("", "*/*", "application/json"):
        plain = ask(request(accept=accept))
        assert (plain.body, plain.content_type) == (b"welcome\n", "text/plain; charset=utf-8")
        assert plain.headers["Vary"] == "Accept"
    assert page.headers["Vary"] == "Accept, Accept-Encoding"


def test_without_a_dashboard_there_is_only_the_client() -> None:
    given = settings(enabled=False)
    assert ask(request(accept=HTML), given).body == b"welcome\n"
    for path in ("/fiveways.js", "/fiveways.d.ts"):
        assert ask(request(path), given).status == 200
    for path in ("/plotly.js", "/report", *FILES):
        assert made(given).answer(request(path)) is None


@pytest.mark.parametrize(
    "path", ["/nothing", "/dashboard", "/dashboard/", "/dashboard/../index.html", "/index.html", "/web"]
)
def test_nothing_else_is_served(path: str) -> None:
    assert made().answer(request(path)) is None


@pytest.mark.parametrize("path", ["/", "/fiveways.js", "/report", "/dashboard/main.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_pages_can_only_be_read(path: str, method: str) -> None:
    refused = ask(request(path, method, accept=HTML))
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/fiveways.js", "/fiveways.d.ts", "/plotly.js", *FILES])
def test_every_file_says_what_it_is_and_can_be_asked_for_again(path: str) -> None:
    async def run() -> None:
        served = made()
        whole = await answered(served, request(path, accept=HTML))
        assert whole is not None
        assert whole.headers["X-Content-Type-Options"] == "nosniff"
        assert whole.headers["Referrer-Policy"] == "no-referrer"
        assert whole.headers["Cache-Control"] == "no-cache"
        assert "Content-Encoding" not in whole.headers
        kinds = {"": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        kinds[".ts"] = "application/typescript"
        assert whole.content_type.partition(";")[0] == kinds[Path(path).suffix]
        packed = await answered(served, request(path, accept=HTML, accept_encoding="deflate, gzip;q=0.5"))
        assert packed is not None
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Accept-Encoding" in packed.headers["Vary"]
        assert gzip.decompress(packed.body) == whole.body
        tag = whole.headers["ETag"]
        assert tag == packed.headers["ETag"]
        for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
            kept = await answered(served, request(path, accept=HTML, if_none_match=known))
            assert kept is not None
            assert (kept.status, kept.body, kept.headers["ETag"]) == (304, b"", tag)
        again = await answered(served, request(path, accept=HTML, if_none_match='"other"'))
        assert again == whole

    asyncio.run(run())


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip; q=0.0", "identity"])
def test_who_takes_no_gzip_gets_none(accepted: str) -> None:
    assert "Content-Encoding" not in ask(request("/fiveways.js", accept_encoding=accepted)).headers


def test_the_dashboard_may_load_nothing_but_its_own_files() -> None:
    allowed = policy(ask(request(accept=HTML)))
    assert (allowed["default-src"], allowed["script-src"], allowed["connect-src"]) == ("'none'", "'self'", "'self'")
    assert (allowed["frame-ancestors"], allowed["base-uri"], allowed["form-action"]) == ("'none'", "'none'", "'none'")
    assert "unsafe" not in " ".join(allowed.values())
    # One sheet, which the chart library brings along.
    assert re.fullmatch(r"'self' 'sha256-[\w+/=]{44}'", allowed["style-src"])


def test_the_page_itself_has_neither_scripts_nor_styles_inside() -> None:
    page = ask(request(accept=HTML)).body.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


def test_every_file_that_the_page_names_is_served() -> None:
    page = ask(request(accept=HTML)).body.decode()
    named = set(re.findall(r'(?:src|href)="(/[^"#?]*)', page))
    for script in [path for path in FILES if path.endswith(".js")]:
        text = ask(request(script)).body.decode()
        named |= {
            f"/dashboard/{name[2:]}" if name.startswith("./") else name for name in re.findall(r'from "([^"]+)"', text)
        }
    assert {path for path in named if ask(request(path, accept=HTML)).status != 200} == set()
    assert {path for path in FILES if path.endswith(".js")} <= named


def test_the_chart_library_is_kept_for_ever_under_the_name_of_its_version() -> None:
    page = ask(request(accept=HTML)).body.decode()
    found = re.search(r'src="/plotly\.js\?(v=\w+)"', page)
    assert found is not None
    assert "immutable" in ask(request("/plotly.js", query=found[1])).headers["Cache-Control"]
    for other in ("", "v=", "v=older"):
        assert ask(request("/plotly.js", query=other)).headers["Cache-Control"] == "no-cache"


def test_without_the_chart_library_there_is_a_page_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert policy(ask(request(accept=HTML)))["style-src"] == "'self'"
    assert ask(request("/plotly.js")).body == b""


def test_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        served = made()
        await asyncio.gather(*(answered(served, request("/dashboard/main.js")) for _ in range(3)))
        monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read again"))
        assert await answered(served, request("/dashboard/main.js")) is not None

    asyncio.run(run())


@pytest.mark.parametrize("accepted", ["", "gzip"])
def test_where_others_have_much_unread_nobody_gets_more_until_it_is_read(accepted: str) -> None:
    async def run() -> None:
        unread = web_pages._MAX_UNREAD
        served = made(unread=lambda: unread)
        asked = request("/plotly.js", accept_encoding=accepted)
        found = await answered(served, asked)
        assert found is not None
        assert found.status == 200
        unread += 1
        refused = await answered(served, asked)
        assert refused is not None
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        kept = await answered(served, request("/plotly.js", if_none_match=found.headers["ETag"]))
        assert kept is not None
        assert kept.status == 304
        unread -= 1
        assert await answered(served, asked) == found

    asyncio.run(run())


def test_one_file_at_a_time_is_unpacked_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    unread, at_once = 0, 0
    unpack = gzip.decompress

    def counted(data: bytes) -> bytes:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        found = unpack(data)
        at_once -= 1
        return found

    async def run() -> None:
        served = made(unread=lambda: unread)

        async def client() -> int:
            nonlocal unread
            found = await answered(served, request("/plotly.js"))
            assert found is not None
            unread += len(found.body) if found.status == 200 else 0
            return found.status

        monkeypatch.setattr(web_pages, "_MAX_UNREAD", 10_000_000)
        statuses = await asyncio.gather(*(client() for _ in range(20)))
        assert set(statuses) == {200, 503}
        assert unread < 20_000_000

    monkeypatch.setattr(gzip, "decompress", counted)
    asyncio.run(run())


# The report.


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "report.html").write_text("<!DOCTYPE html><title>report</title>")
    return tmp_path


def test_the_report_is_served_in_a_sandbox(out: Path) -> None:
    found = ask(request("/report"), settings(tables=str(out)))
    assert (found.status, found.content_type) == (200, "text/html; charset=utf-8")
    assert found.body == b"<!DOCTYPE html><title>report</title>"
    allowed = policy(found)
    # Without `allow-same-origin` it is a page of nowhere: what it asks of the hub comes from the origin `null`.
    assert allowed["sandbox"] == "allow-scripts"
    assert (allowed["default-src"], allowed["frame-ancestors"]) == ("'none'", "'none'")
    assert "connect-src" not in allowed


def test_the_report_changes_with_its_file(out: Path) -> None:
    async def run() -> None:
        served = made(settings(tables=str(out)))
        first = await answered(served, request("/report"))
        same = await answered(served, request("/report"))
        (out / "report.html").write_text("another one, which is longer than the first was")
        other = await answered(served, request("/report"))
        assert first is not None
        assert other is not None
        assert same == first
        assert other.headers["ETag"] != first.headers["ETag"]
        assert other.body.startswith(b"another one")
        (out / "report.html").unlink()
        gone = await answered(served, request("/report"))
        assert gone is not None
        assert gone.status == 404

    asyncio.run(run())


def test_where_there_is_no_report_it_is_said_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (settings(), settings(tables=str(tmp_path)), settings(tables=str(tmp_path / "nothing"))):
        found = ask(request("/report"), given)
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
def test_the_report_is_for_those_who_may_call_for_the_results(
    out: Path, anonymous: AnonymousAccess, call: tuple[str, ...], is_loopback: bool, status: int
) -> None:
    given = settings(tables=str(out), auth=AuthSettings(anonymous=anonymous, call=call))
    found = ask(request("/report", is_loopback=is_loopback), given)
    assert found.status == status
    assert status == 200 or found.body == b"the report is for those who may call hub.results\n"


def test_a_token_opens_the_report_as_well(out: Path) -> None:
    some = IdentitySettings("viewer", Secret("sesame"), call=("hub.results",))
    other = IdentitySettings("worker", Secret("open"), call=("math.*",))
    given = settings(tables=str(out), auth=AuthSettings(anonymous="never", identity=(some, other)))
    found = {
        token: ask(request("/report", authorization=f"Bearer {token}"), given) for token in ("sesame", "open", "x")
    }
    assert {token: each.status for token, each in found.items()} == {"sesame": 200, "open": 403, "x": 401}
    assert found["x"].headers["WWW-Authenticate"] == "Bearer"


def test_new_settings_hold_at_once(out: Path) -> None:
    async def run() -> None:
        given = settings(tables=str(out))
        hub = hub_of(given)
        served = made(given, hub)
        await answered(served, request("/report"))
        hub.reload(to_hub_settings(replace(given, auth=AuthSettings(anonymous="never"))))
        refused = await answered(served, request("/report"))
        assert refused is not None
        assert refused.status == 403
        served.configure(settings(enabled=False))
        assert served.answer(request("/report")) is None

    asyncio.run(run())
