"""Reload of settings: sections that apply at once, and warnings for the others."""

import asyncio
import logging
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from fiveways.runtime import server
from fiveways.settings.docs import render_page
from fiveways.settings.operations import DashboardSettings, JournalSettings, LogSettings, MetricsSettings
from fiveways.settings.sections import (
    AuthSettings,
    CallSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TopicSettings,
    Umq36Settings,
)
from tests.support import raw_peers

AT_ONCE = [
    AuthSettings(anonymous="always"),
    CallSettings(timeout=1.0),
    TopicSettings({"alarms.*": "close"}),
    DashboardSettings(enabled=False),
    MetricsSettings(max_methods=1),
]
LATER = [
    ServerSettings(port=0, ping_interval=1.0),
    Umq36Settings("hub.echo"),
    StoreSettings("elsewhere.db"),
    JournalSettings("elsewhere"),
    LogSettings("debug"),
]


def section(part: object) -> str:
    return next(each.name for each in fields(Settings) if isinstance(getattr(Settings(), each.name), type(part)))


def warnings_after(part: object, caplog: pytest.LogCaptureFixture) -> list[str]:
    async def reload() -> None:
        hub_settings = raw_peers.settings()
        changed: Any = {section(part): part}
        async with raw_peers.hub(hub_settings) as place:
            place.server.reload(replace(hub_settings, **changed))

    with caplog.at_level(logging.WARNING, "fiveways.server"):
        asyncio.run(reload())
    return caplog.messages


@pytest.mark.parametrize("part", LATER, ids=section)
def test_section_that_needs_a_restart_is_logged(part: object, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_after(part, caplog) == [f"[{section(part)}] changed; restart the hub to apply it"]


@pytest.mark.parametrize("part", AT_ONCE, ids=section)
def test_reloadable_section_gives_no_warning(part: object, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_after(part, caplog) == []


def test_docs_name_the_reloadable_sections() -> None:
    sentence = render_page().partition(" Changes in")[2].partition(" take effect at once")[0]
    assert set(re.findall(r"`\[(\w+)\]`", sentence)) == server._RELOADABLE_SECTIONS
