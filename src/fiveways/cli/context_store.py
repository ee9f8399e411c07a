"""Storage of saved contexts: the URL of a hub and the paths of credential files, one TOML file per context.

The directory is `$XDG_CONFIG_HOME/fiveways/contexts` (`~/.config/fiveways/contexts`). It has a file `NAME.toml` for
each context, and a file `default` with the name of the default context. Each change is one atomic rename, so
concurrent commands need no lock.
"""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from fiveways.cli.errors import UsageError, error_message

if TYPE_CHECKING:
    from fiveways.settings.sources import SettingLocation

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names contain neither dots nor colons, so they rarely look like a method, a topic or a queue."""
_KEYS: Final = ("url", "token_file", "identity", "secret_file", "schema")
_SECRET_KEY: Final = re.compile(r"token|secret|passw|passphrase|pwd|auth|credential|key|jwt|signature", re.IGNORECASE)
_SUFFIX: Final = ".toml"
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class SavedContext:
    """The URL of a hub, and the paths of its credential files; never the credentials themselves."""

    url: str
    token_file: Path | None = None
    identity: str = ""
    secret_file: Path | None = None
    schema: tuple[Path, ...] = ()

    def as_toml(self) -> str:
        """Return the content of the context's file."""
        schema = f"[{', '.join(_quoted(str(path)) for path in self.schema)}]" if self.schema else ""
        values = {
            "url": _quoted(self.url),
            "token_file": "" if self.token_file is None else _quoted(str(self.token_file)),
            "identity": _quoted(self.identity) if self.identity else "",
            "secret_file": "" if self.secret_file is None else _quoted(str(self.secret_file)),
            "schema": schema,
        }
        return "".join(f"{key} = {value}\n" for key, value in values.items() if value)


def folder() -> Path | None:
    """Return the directory of contexts, which may not exist; None if the user has no home directory."""
    # The XDG specification ignores relative paths.
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~/.config"))  # noqa: PTH111  Path.expanduser raises without a home directory
    return base / "fiveways" / "contexts" if base.is_absolute() else None


def path_of(name: str) -> Path:
    """Return the file of a context.

    Raises:
        UsageError: the name is malformed, or the user has no home directory.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid context name: use up to 64 ASCII letters, digits, - and _, "
            "beginning with a letter or a digit"
        )
    return _required_folder() / f"{name}{_SUFFIX}"


def is_saved(name: str) -> bool:
    """Return whether a context of this name is saved."""
    home = folder()
    # isfile is False for a directory that this user may not enter; Path.is_file would raise.
    return home is not None and bool(NAME_PATTERN.fullmatch(name)) and os.path.isfile(home / f"{name}{_SUFFIX}")  # noqa: PTH113


def names() -> list[str]:
    """Return the names of all saved contexts, sorted."""
    home = folder()
    try:
        files = [] if home is None else os.listdir(home)  # noqa: PTH208  Path.iterdir has no advantage here
    except OSError:
        return []
    return sorted(name for file in files if file.endswith(_SUFFIX) and is_saved(name := file.removesuffix(_SUFFIX)))


def saved_names() -> str:
    """Return a list of saved contexts, for error messages."""
    return f"saved contexts: {', '.join(saved)}" if (saved := names()) else "no contexts are saved"


def load(name: str) -> SavedContext:
    """Read a context.

    Raises:
        UsageError: the context does not exist or its file is broken; the message names the file and the line.
    """
    from fiveways.settings.sources import SettingsError, read_toml  # noqa: PLC0415  help does without it

    path = path_of(name)
    if not is_saved(name):
        raise UsageError(f"there is no context {name!r}; {saved_names()}")
    try:
        tree, place = read_toml(path)
        return _parse_context(tree, place, path.parent)
    except SettingsError as exc:
        raise UsageError(str(exc)) from exc


def save(name: str, context: SavedContext) -> Path:
    """Write a context, with mode 0600 in a directory with mode 0700, and return its file."""
    path = path_of(name)
    _write(path, context.as_toml())
    return path


def remove(name: str) -> bool:
    """Delete a context; return whether it was the default."""
    path = path_of(name)
    was_default = default_name() == name
    if was_default:
        (path.parent / _DEFAULT).unlink(missing_ok=True)
    try:
        path.unlink()
    except FileNotFoundError:
        raise UsageError(f"there is no context {name!r}; {saved_names()}") from None
    return was_default


def default_name() -> str:
    """Return the name of the default context; empty if there is none.

    Raises:
        UsageError: the file that holds the name is broken.
    """
    home = folder()
    path = None if home is None else home / _DEFAULT
    if path is None or not os.path.isfile(path):  # noqa: PTH113  False for a directory that this user may not enter
        return ""
    try:
        name = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:  # removed since
        return ""
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        name = ""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{path}, line 1: not a valid context name; `fiveways context use NAME` rewrites the file")
    return name


def make_default(name: str) -> None:
    """Choose the default context.

    Raises:
        UsageError: the context cannot be used.
    """
    load(name)
    _write(_required_folder() / _DEFAULT, f"{name}\n")


def check_url(url: str) -> str:
    """Return the reason why a URL cannot be saved, without the URL itself; empty if it can be saved."""
    scheme, separator, rest = url.partition("://")
    if not scheme or not separator:
        return "the URL of a context must begin with a scheme, such as lrpm+ws://localhost:7500"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    tail = rest.partition("?")[2].replace("?", "&").replace("#", "&") or rest.partition("#")[2]
    if "@" in authority or any(_SECRET_KEY.search(key) for key, _ in parse_qsl(tail, keep_blank_values=True)):
        return (
            "the URL of a context must not contain a name, a password or a token: save the path of a file instead, "
            "with --token-file FILE, or --identity NAME and --secret-file FILE"
        )
    return ""


def _parse_context(tree: dict[str, object], place: "SettingLocation", base: Path) -> SavedContext:
    """Validate the content of a file. Relative paths, as an editor may write them, are relative to the file."""
    for key, value in tree.items():
        if key not in _KEYS:
            raise place.child(key).error(f"unknown key {key}; the keys of a context are {', '.join(_KEYS)}", key)
        if key == "schema":
            if not isinstance(value, list) or not all(isinstance(path, str) and path for path in value):
                raise place.child(key).error("schema must be a list of paths", key)
        elif not isinstance(value, str) or not value:
            raise place.child(key).error(f"{key} must be a string that is not empty", key)
    if "url" not in tree:
        raise place.error("url is missing", "url")
    if reason := check_url(str(tree["url"])):
        raise place.child("url").error(reason, "url")
    paths = {key: base / str(tree[key]) for key in ("token_file", "secret_file") if key in tree}
    schema = tree.get("schema", [])
    return SavedContext(
        str(tree["url"]),
        paths.get("token_file"),
        str(tree.get("identity", "")),
        paths.get("secret_file"),
        tuple(base / str(path) for path in schema) if isinstance(schema, list) else (),
    )


def _quoted(text: str) -> str:
    # Each JSON string is a TOML string, except for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _required_folder() -> Path:
    if (home := folder()) is None:
        raise UsageError("there is no home directory for saved contexts: set XDG_CONFIG_HOME to an absolute path")
    return home


def _write(path: Path, text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UsageError("paths and names of a context must be UTF-8") from None
    try:
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        # A temporary file has mode 0600.
        handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {error_message(exc)}") from exc
