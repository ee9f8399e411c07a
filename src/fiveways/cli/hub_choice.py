"""The hub that a command line names: a URL, a saved context, `FIVEWAYS_URL` or the default context."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from fiveways.cli import context_store
from fiveways.cli.context_store import SavedContext
from fiveways.cli.errors import UsageError

URL_VARIABLE: Final = "FIVEWAYS_URL"
_HINT: Final = (
    "give a URL or the name of a saved context as the first argument, set FIVEWAYS_URL, "
    "or choose a default with `fiveways context use NAME`"
)


class HubChoice(NamedTuple):
    """A hub, and the saved context that named it."""

    url: str
    context: SavedContext | None = None


def names_hub(text: str) -> bool:
    """Whether a positional argument is a URL or the name of a saved context."""
    return "://" in text or context_store.is_saved(text)


def parse_hub(text: str) -> HubChoice:
    """Return the hub of a URL or of a saved context.

    Raises:
        UsageError: the context does not exist or is broken.
    """
    # A text with :// is a URL; no saved context is read for it, broken or not.
    if "://" in text:
        return HubChoice(text)
    context = context_store.load(text)
    return HubChoice(context.url, context)


def default_hub() -> HubChoice | None:
    """Return the hub for a command line that names none: that of `FIVEWAYS_URL`, or of the default context.

    Raises:
        UsageError: the variable or the default names a context that does not exist or is broken.
    """
    if text := os.environ.get(URL_VARIABLE, "").strip():
        if not names_hub(text):
            listed = context_store.saved_names()
            raise UsageError(f"{URL_VARIABLE} is {text!r}, which is neither a URL nor a saved context; {listed}")
        return parse_hub(text)
    if not (name := context_store.default_name()):
        return None
    if not context_store.is_saved(name):
        listed = context_store.saved_names()
        raise UsageError(
            f"the default context {name!r} does not exist; choose one with `fiveways context use NAME`; {listed}"
        )
    return parse_hub(name)


def hub_if_omitted(positionals: Sequence[str], most: int, fallback: str | None) -> HubChoice:
    """Return the hub of a command line whose first positional argument, if there is one, names no hub.

    Args:
        positionals: all positional arguments.
        most: the number of positional arguments that the command takes beside the hub.
        fallback: the URL if nothing names a hub.

    Raises:
        UsageError: nothing names a hub.
    """
    # One argument too many: the first one was meant to name the hub.
    if len(positionals) > most:
        listed = context_store.saved_names()
        raise UsageError(f"{positionals[0]!r} is neither a URL nor a saved context; {listed}")
    if (found := default_hub()) is not None:
        return found
    if fallback:
        return HubChoice(fallback)
    listed = context_store.saved_names()
    if positionals:
        first = positionals[0]
        raise UsageError(
            f"{first!r} is neither a URL nor a saved context, and there is no default hub: {_HINT}; {listed}"
        )
    raise UsageError(f"no hub is named: {_HINT}; {listed}")
