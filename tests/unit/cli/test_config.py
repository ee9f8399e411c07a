"""`fiveways config`."""

from pathlib import Path

import pytest

from fiveways.cli import main

STRONG = "b2f7c01d9e8a4635b2f7c01d9e8a4635"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FIVEWAYS_CONFIG", raising=False)
    path = tmp_path / "fiveways.toml"
    path.write_text(
        "[[auth.identity]]\nname = 'a'\ntoken = '" + STRONG + "'\n[log]\nlevel = 'debug'\n", encoding="utf-8"
    )
    return path


def test_valid_file_is_accepted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o644)
    assert main(["config", "check", str(file)]) == 0
    output = capsys.readouterr()
    assert output.out == f"{file} is valid; with the environment it sets 2 settings\n"
    assert "every user of this machine can read it" in output.err
    file.write_text("[log]\nlevel = 'debug'\n", encoding="utf-8")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is valid; with the environment it sets 1 setting\n"


def test_error_in_file_names_the_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[log]\nlevl = 'debug'\n", encoding="utf-8")
    assert main(["config", "check", str(file)]) == 1
    sentence = f"fiveways config: {file}, line 2: unknown setting log.levl; did you mean log.level?\n"
    assert capsys.readouterr().err == sentence


def test_all_settings_are_shown_with_their_source(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FIVEWAYS_SERVER_PORT", "7501")
    assert main(["config", "show", str(file)]) == 0
    output = capsys.readouterr().out
    assert "port = 7501  # FIVEWAYS_SERVER_PORT" in output
    assert f'level = "debug"  # {file}, line 5' in output
    assert STRONG not in output
    assert main(["config", "show", "--docs"]) == 0
    assert "# Port for WebSocket and HTTP; 0 is any free port." in capsys.readouterr().out


@pytest.mark.parametrize("key", ["token", "secret"])
def test_weak_tokens_are_refused_unless_a_setting_allows_them(
    key: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = f"[[auth.identity]]\nname = 'a'\n{key} = 'hidden'\n"
    file.write_text(identity, encoding="utf-8")
    assert main(["config", "check", str(file)]) == 1
    output = capsys.readouterr().err
    assert f"{file}: the {key} of 'a' has about 13 bits but needs 128" in output
    assert "hidden" not in output
    file.write_text(f"[auth]\nallow_weak_tokens = true\n{identity}", encoding="utf-8")
    assert main(["config", "check", str(file)]) == 0
