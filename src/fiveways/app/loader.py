"""An application by its name, `module:app`, for whoever starts it from a command line."""

import importlib
import sys
import traceback
from functools import reduce
from pathlib import Path

from fiveways.app.app import App
from fiveways.errors import FivewaysError


class LoadError(FivewaysError):
    """There is no application by that name; the message says what is missing and where it was looked for."""


def load_app(name: str) -> App:
    """Return the application `module:attribute`, or `module:app` where only the module is named.

    The current directory is looked in first.

    Raises:
        LoadError: there is none, or the module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "app"
    if module_name.endswith(".py") or "/" in module_name:
        hint = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise LoadError(f"{module_name!r} is a file; name the module: {hint}:{attribute}")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise LoadError(f"{name!r} is not written as module:app")
    module = _import_module(module_name)
    try:
        found: object = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        others = [each for each, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(f'{module_name}:{each}' for each in others)}" if others else ""
        raise LoadError(f"the module {module_name} has no {attribute!r}{hint}") from None
    if not isinstance(found, App):
        raise LoadError(f"{module_name}:{attribute} is a {type(found).__name__}, not a fiveways.App")
    return found


def _import_module(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        # Another module that this one wants may be missing, which is not the same.
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise LoadError(
                f"there is no module {exc.name!r} (looked for in {here} and where Python finds its packages)"
            ) from None
        raise _import_error(name, exc) from exc
    except (Exception, SystemExit) as exc:
        raise _import_error(name, exc) from exc


def _import_error(name: str, error: BaseException) -> LoadError:
    """Say the last line of the traceback, and where in the module's code it comes from."""
    what = traceback.format_exception_only(error)[-1].strip()
    return LoadError(f"the module {name} cannot be imported: {what}{_error_location(error)}")


def _error_location(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f" at {error.filename}:{error.lineno}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
