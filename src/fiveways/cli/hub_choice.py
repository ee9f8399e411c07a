"""The choice of the hub: a URL, a saved context, `FIVEWAYS_URL` or the default context."""

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
    """The URL of a hub, and the saved context that it comes from."""

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
    # A text with :// is always a URL; no context file is read for it.
    if "://" in text:
        return HubChoice(text)
    context = context_store.load(text)
    return HubChoice(context.url, context)


def default_hub() -> HubChoice | None:
    """Return the hub of `FIVEWAYS_URL`, or else of the default context; None without both.

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


def hub_if_omitted(positionals: Sequence[str], max_positionals: int, fallback: str | None) -> HubChoice:
    """Return the hub for a command line without a hub as its first positional argument.

    Args:
        positionals: all positional arguments.
        max_positionals: the maximum number of positional arguments besides the hub.
        fallback: the URL if there is no default hub.

    Raises:
        UsageError: there is no hub.
    """
    # With too many arguments, the first one was probably meant to be the hub.
    if len(positionals) > max_positionals:
        listed = context_store.saved_names()
        raise UsageError(f"{positionals[0]!r} is neither a URL nor a saved context; {listed}")
    if (hub := default_hub()) is not None:
        return hub
    if fallback:
        return HubChoice(fallback)
    listed = context_store.saved_names()
    if positionals:
        first = positionals[0]
        raise UsageError(
            f"{first!r} is neither a URL nor a saved context, and there is no default hub: {_HINT}; {listed}"
        )
    raise UsageError(f"no hub is given: {_HINT}; {listed}")
