"""Crossbar in its own virtual environment: it needs about a hundred packages that nothing else uses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSION: Final = "26.10.1"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "bench" / f"crossbar-{VERSION}"
_READY: Final = CACHE / "ready"


def command(port: int) -> list[str]:
    """Return the command that starts a node on this port; the first call installs Crossbar, which takes a minute."""
    if not _READY.exists():
        _install()
    node = CACHE / "node"
    node.mkdir(exist_ok=True)
    (node / "config.json").write_text(json.dumps(_config(port)), encoding="utf-8")
    return [str(CACHE / "bin" / "crossbar"), "start", "--cbdir", str(node)]


def _install() -> None:
    print("installing Crossbar into .cache/bench", file=sys.stderr)
    uv = [sys.executable, "-m", "uv"]
    python = str(CACHE / "bin" / "python")
    for step in (
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(CACHE)],
        [*uv, "pip", "install", "--quiet", "--python", python, f"crossbar=={VERSION}"],
    ):
        subprocess.run(step, check=True)  # noqa: S603  our own command
    _READY.touch()


def _config(port: int) -> dict[str, object]:
    """Return a node configuration that permits everything, over WebSocket with JSON."""
    allow = dict.fromkeys(("call", "register", "publish", "subscribe"), True)
    permission = {
        "uri": "",
        "match": "prefix",
        "allow": allow,
        "disclose": {"caller": False, "publisher": False},
        "cache": True,
    }
    endpoint = {"type": "tcp", "interface": "127.0.0.1", "port": port}
    worker = {
        "type": "router",
        "realms": [{"name": "bench", "roles": [{"name": "anonymous", "permissions": [permission]}]}],
        "transports": [{"type": "websocket", "endpoint": endpoint, "serializers": ["json"]}],
    }
    return {"version": 2, "workers": [worker]}
