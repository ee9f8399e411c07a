"""`fiveways check` against an HTTP server that says what a test wants."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from fiveways.cli import check, main
from fiveways.cli.check import CheckOptions, State


@contextmanager
def hub(**answers: tuple[int, str]) -> Iterator[str]:
    """Serve /livez and /readyz, and give the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path[1:], (200, "ok\n"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def nobody() -> str:
    """A URL where nobody listens any more."""
    with hub() as url:
        return url


def test_a_healthy_hub_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url]) == 0
    line = capsys.readouterr().out
    assert line.startswith("FIVEWAYS OK - alive and ready, ")
    text, numbers = line.split(" | ")
    assert line.count("\n") == 1
    assert [each.split("=")[0] for each in numbers.split()] == ["livez", "readyz"]
    assert all(each.endswith("s;;;0") for each in numbers.split())
    assert "|" not in text


@pytest.mark.parametrize("scheme", ["lrpm+ws", "umq+ws", "http"])
def test_the_url_of_a_client_will_do(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url.replace("http", scheme) + ("/lrpm" if scheme != "http" else "")]) == 0
    assert "FIVEWAYS OK" in capsys.readouterr().out


def test_a_slow_hub_is_a_warning_or_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url, "--warning", "0", "--critical", "60"]) == 1
        assert main(["check", url, "--warning", "0", "--critical", "0"]) == 2
    warning, critical = capsys.readouterr().out.splitlines()
    assert warning.startswith("FIVEWAYS WARNING - ")
    assert critical.startswith("FIVEWAYS CRITICAL - ")
    assert warning.endswith("s;0;60;0")


def test_a_hub_that_goes_on_without_something_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with hub(readyz=(200, "ok, but the connection to the broker is lost\n")) as url:
        assert main(["check", url]) == 1
    assert capsys.readouterr().out.startswith(
        "FIVEWAYS WARNING - ready, but the connection to the broker is lost | livez="
    )


def test_a_hub_that_closes_is_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    with hub(readyz=(503, "closing | soon\nor later")) as url:
        assert main(["check", url]) == 2
    line = capsys.readouterr().out
    assert line.startswith("FIVEWAYS CRITICAL - /readyz says 503 closing / soon\\nor later | livez=")


def test_a_hub_that_is_away_is_an_alarm(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", nobody]) == 2
    assert capsys.readouterr().out == f"FIVEWAYS CRITICAL - {nobody} cannot be reached: Connection refused\n"


def test_a_hub_that_says_nothing_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(check, "_get", silent)
    assert check.check(CheckOptions("http://localhost", timeout=0.5)) is State.CRITICAL


@pytest.mark.parametrize("url", ["nonsense", "ftp://localhost", "http://", "http://localhost:port"])
def test_a_url_of_no_hub_is_unknown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", url]) == 3
    assert capsys.readouterr().out.startswith(f"FIVEWAYS UNKNOWN - {url!r} ")


def test_a_wrong_command_line_is_unknown() -> None:
    assert main(["check", "--warning", "soon"]) == 3
    assert main(["check", "--frob"]) == 3
