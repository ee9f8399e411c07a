"""docs/demo.md: its commands work with a kept demo, and its table lists all roles."""

import re
import shlex
import signal
from pathlib import Path

from fiveways.demo.shop import ROLES
from tests.support import demo_process, hubs
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
ENDLESS = {"subscribe": ["--count", "1"], "tail": []}
"""Options that end commands which would not end by themselves."""


def test_page_lists_all_roles() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| ([\w ]+) \| .* \| ([\w ]*) ?\|$", PAGE, re.MULTILINE)
    documented = {protocol: (service, client.strip()) for protocol, service, client in rows if protocol in ROLES}
    assert documented == {protocol: (role.service, role.client) for protocol, role in ROLES.items()}


def test_commands_for_a_kept_demo_work(tmp_path: Path) -> None:
    commands = re.findall(r"^    fiveways (.+)$", PAGE.partition("From a second terminal:")[2], re.MULTILINE)
    assert len(commands) == 6
    with demo_process.running_demo("--seconds", "2", "--no-pipeline", "--keep", folder=tmp_path / "kept") as (
        process,
        _,
    ):
        output = demo_process.read_until(process, "Ctrl-C ends it")
        http = re.search(r"http://localhost:(\d+)/", output)
        mqtt = re.search(r"\[mqtt\]\nenabled = true\nport = (\d+)", (tmp_path / "kept/fiveways.toml").read_text())
        assert http
        assert mqtt
        for command in commands:
            adapted = command.replace("localhost:7500", f"localhost:{http[1]}").replace(
                "fiveways-demo/", f"{tmp_path}/kept/"
            )
            adapted = adapted.replace("mqtt://localhost/", f"mqtt://localhost:{mqtt[1]}/").replace(" --follow", "")
            words = shlex.split(adapted)
            code, out, err = hubs.run(*words, *ENDLESS.get(words[0], []))
            assert (code, err) == (0, ""), command
            assert out
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 0
