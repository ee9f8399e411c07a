"""Storage of saved contexts."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.cli import context_store, hub_choice
from fiveways.cli.context_store import SavedContext
from fiveways.cli.errors import UsageError
from fiveways.settings.sources import read_toml

URL = "lrpm+ws://localhost:7500"
_TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FIVEWAYS_URL", raising=False)
    return tmp_path / "fiveways" / "contexts"


def test_context_is_read_as_it_was_saved() -> None:
    full = SavedContext(URL, Path("/t"), "me", Path("/s"), (Path("/a"), Path("/b")))
    for context in (SavedContext(URL), full):
        context_store.save("prod", context)
        assert context_store.load("prod") == context


@given(identity=_TEXT, path=_TEXT)
def test_any_text_survives_toml(identity: str, path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    context = SavedContext(URL, Path("/", path.replace("\0", "")), identity)
    file = tmp_path_factory.getbasetemp() / "context.toml"
    file.write_bytes(context.as_toml().encode())
    assert read_toml(file)[0] == {"url": URL, "token_file": str(context.token_file), "identity": identity}


def test_relative_path_is_relative_to_the_file(home: Path) -> None:
    context_store.save("prod", SavedContext(URL))
    (home / "prod.toml").write_text(f'url = "{URL}"\ntoken_file = "t"\nschema = ["s"]\n')
    assert context_store.load("prod") == SavedContext(URL, home / "t", schema=(home / "s",))


def test_path_that_is_not_utf8_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        context_store.save("prod", SavedContext(URL, Path(os.fsdecode(b"/\xff"))))
    assert not home.exists()


def test_readers_never_see_a_half_written_context(home: Path) -> None:
    contexts = [SavedContext(URL, Path("/", letter * 5000)) for letter in "ab"]
    context_store.save("prod", contexts[0])
    stop = threading.Event()

    def write(context: SavedContext) -> None:
        while not stop.is_set():
            context_store.save("prod", context)

    writers = [threading.Thread(target=write, args=(context,)) for context in contexts]
    for writer in writers:
        writer.start()
    try:
        assert {context_store.load("prod") for _ in range(200)} <= set(contexts)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert [path.name for path in home.iterdir()] == ["prod.toml"]


def test_concurrent_commands_lose_no_context() -> None:
    names = [f"c{number}" for number in range(20)]
    threads = [threading.Thread(target=context_store.save, args=(name, SavedContext(URL))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert context_store.names() == sorted(names)


def test_failed_write_keeps_the_saved_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context_store.save("prod", SavedContext(URL))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"prod\.toml cannot be written: No space left on device"):
        context_store.save("prod", SavedContext("umq+ws://other"))
    assert [path.name for path in home.iterdir()] == ["prod.toml"]
    assert context_store.load("prod") == SavedContext(URL)


def test_foreign_files_are_no_contexts(home: Path) -> None:
    context_store.save("prod", SavedContext(URL))
    for name in ("notes.txt", "a b.toml", ".hidden.toml"):
        (home / name).write_text("x")
    (home / "folder.toml").mkdir()
    assert context_store.names() == ["prod"]


def test_user_without_home_directory_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert context_store.names() == []
    assert hub_choice.default_hub() is None
    assert not hub_choice.names_hub("prod")
    with pytest.raises(UsageError, match="set XDG_CONFIG_HOME"):
        context_store.save("prod", SavedContext(URL))


@pytest.mark.parametrize("url", [URL, "nq+https://hub/nq?tenant=a", "lrpm+ws://hub?encoding=cbor", "umq+ws://[::1]:1"])
def test_url_without_secret_is_accepted(url: str) -> None:
    assert context_store.check_url(url) == ""


def test_url_is_a_hub_without_any_context() -> None:
    assert hub_choice.names_hub(URL)
    assert hub_choice.parse_hub(URL) == hub_choice.HubChoice(URL)
    assert hub_choice.hub_if_omitted([], 0, URL) == hub_choice.HubChoice(URL)
