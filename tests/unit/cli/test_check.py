"""`fiveways check` against a fake hub with configurable responses."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from fiveways.cli import check, main
from fiveways.cli.check import CheckOptions, State


@contextmanager
def hub(**responses: tuple[int, str]) -> Iterator[str]:
    """Serve /livez and /readyz, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = responses.get(self.path[1:], (200, "ok\n"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name of the overridden method
            """Suppress the access log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def closed_url() -> str:
    """The URL of a closed port."""
    with hub() as url:
        return url


def test_healthy_hub_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url]) == 0
    line = capsys.readouterr().out
    assert line.startswith("FIVEWAYS OK - alive and ready, ")
    text, numbers = line.split(" | ")
    assert line.count("\n") == 1
    assert [metric.split("=")[0] for metric in numbers.split()] == ["livez", "readyz"]
    assert all(metric.endswith("s;;;0") for metric in numbers.split())
    assert "|" not in text


@pytest.mark.parametrize("scheme", ["lrpm+ws", "umq+ws", "http"])
def test_url_of_a_client_is_accepted(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url.replace("http", scheme) + ("/lrpm" if scheme != "http" else "")]) == 0
    assert "FIVEWAYS OK" in capsys.readouterr().out


def test_slow_hub_is_warning_or_critical(capsys: pytest.CaptureFixture[str]) -> None:
    with hub() as url:
        assert main(["check", url, "--warning", "0", "--critical", "60"]) == 1
        assert main(["check", url, "--warning", "0", "--critical", "0"]) == 2
    warning, critical = capsys.readouterr().out.splitlines()
    assert warning.startswith("FIVEWAYS WARNING - ")
    assert critical.startswith("FIVEWAYS CRITICAL - ")
    assert warning.endswith("s;0;60;0")


def test_hub_with_a_problem_is_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with hub(readyz=(200, "ok, but the connection to the broker is lost\n")) as url:
        assert main(["check", url]) == 1
    assert capsys.readouterr().out.startswith(
        "FIVEWAYS WARNING - ready, but the connection to the broker is lost | livez="
    )


def test_draining_hub_is_critical(capsys: pytest.CaptureFixture[str]) -> None:
    with hub(readyz=(503, "closing | soon\nor later")) as url:
        assert main(["check", url]) == 2
    line = capsys.readouterr().out
    assert line.startswith("FIVEWAYS CRITICAL - /readyz returned 503 closing / soon\\nor later | livez=")


def test_unreachable_hub_is_critical(closed_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", closed_url]) == 2
    assert capsys.readouterr().out == f"FIVEWAYS CRITICAL - {closed_url} cannot be reached: Connection refused\n"


def test_hub_timeout_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(check, "_get", silent)
    assert check.check(CheckOptions("http://localhost", timeout=0.5)) is State.CRITICAL


@pytest.mark.parametrize("url", ["nonsense", "ftp://localhost", "http://", "http://localhost:port"])
def test_url_that_names_no_hub_is_unknown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", url]) == 3
    assert capsys.readouterr().out.startswith(f"FIVEWAYS UNKNOWN - {url!r} ")


def test_wrong_command_line_is_unknown() -> None:
    assert main(["check", "--warning", "soon"]) == 3
    assert main(["check", "--frob"]) == 3
