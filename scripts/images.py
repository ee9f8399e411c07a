"""Write the pictures of the README: the dashboard during the demo, and the report after it.

    python scripts/images.py docs/images

It runs `fiveways demo` for about a minute and takes screenshots in headless Chromium.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

from playwright.sync_api import sync_playwright

_CHROMIUM: Final = ("chromium-headless-shell", "chromium")
_OPTIONS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_SECONDS: Final = 45
_TIMEOUT: Final = 300.0


def main(folder: Path) -> None:
    """Run the demo and take both pictures."""
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        raise SystemExit("images: Chromium is not installed; its Debian package is chromium-headless-shell")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 860}, device_scale_factor=1)
        run = Path(scratch) / "run"
        command = [sys.executable, "-m", "fiveways", "demo", "--keep", "--plain", "--port", "0"]
        command += ["--seconds", str(_SECONDS), "--directory", str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:  # noqa: S603
            try:
                assert demo.stdout is not None
                page.goto(_dashboard_url(demo.stdout))
                time.sleep(_SECONDS * 0.6)  # until the charts have a history
                page.screenshot(path=folder / "dashboard.png")
                _wait_for_report(demo.stdout)
                page.goto(next(run.rglob("report.html")).as_uri())
                page.wait_for_timeout(1000)
                page.evaluate("document.querySelector('#services').scrollIntoView({behavior: 'instant'})")
                page.wait_for_timeout(500)
                page.screenshot(path=folder / "report.png")
            finally:
                demo.terminate()
        browser.close()


def _dashboard_url(output: IO[str]) -> str:
    for line in output:
        if found := re.search(r"http://[\w.:]+/(?=\s|$)", line):
            return found[0]
    raise SystemExit("images: the demo did not start")


def _wait_for_report(output: IO[str]) -> None:
    end = time.monotonic() + _TIMEOUT
    for line in output:
        if "report.html" in line:
            return
        if time.monotonic() > end:
            break
    raise SystemExit("images: the demo made no report")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
