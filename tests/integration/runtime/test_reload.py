"""What a running hub takes over of new settings, and what it says about the rest."""

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
        given = raw_peers.settings()
        changed: Any = {section(part): part}
        async with raw_peers.hub(given) as place:
            place.server.reload(replace(given, **changed))

    with caplog.at_level(logging.WARNING, "fiveways.server"):
        asyncio.run(reload())
    return caplog.messages


@pytest.mark.parametrize("part", LATER, ids=section)
def test_a_section_that_waits_for_the_next_start_is_named(part: object, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_after(part, caplog) == [f"the settings of [{section(part)}] are taken over at the next start only"]


@pytest.mark.parametrize("part", AT_ONCE, ids=section)
def test_what_holds_at_once_needs_no_warning(part: object, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_after(part, caplog) == []


def test_the_page_names_the_sections_that_hold_at_once() -> None:
    sentence = render_page().partition("if the new settings are bad; ")[2].partition(" hold at once")[0]
    assert set(re.findall(r"`\[(\w+)\]`", sentence)) == server._RELOADABLE_SECTIONS
