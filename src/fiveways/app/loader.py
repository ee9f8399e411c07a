"""Loads an application by its name, `module:app`, for the command line."""

import importlib
import sys
import traceback
from functools import reduce
from pathlib import Path

from fiveways.app.app import App
from fiveways.errors import FivewaysError


class LoadError(FivewaysError):
    """There is no application of that name; the message names the missing part and the searched places."""


def load_app(name: str) -> App:
    """Return the application `module:attribute`, or `module:app` if only the module is named.

    The current directory is searched first.

    Raises:
        LoadError: there is no such application, or the module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "app"
    if module_name.endswith(".py") or "/" in module_name:
        hint = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise LoadError(f"{module_name!r} is a file; name the module: {hint}:{attribute}")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise LoadError(f"{name!r} is not of the form module:app")
    module = _import_module(module_name)
    try:
        app: object = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        others = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(f'{module_name}:{other}' for other in others)}" if others else ""
        raise LoadError(f"the module {module_name} has no {attribute!r}{hint}") from None
    if not isinstance(app, App):
        raise LoadError(f"{module_name}:{attribute} is a {type(app).__name__}, not a fiveways.App")
    return app


def _import_module(name: str) -> object:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        # If the missing module is another one, the error is inside the module.
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise LoadError(
                f"there is no module {exc.name!r} (searched in {directory} and in the Python path)"
            ) from None
        raise _import_error(name, exc) from exc
    except (Exception, SystemExit) as exc:
        raise _import_error(name, exc) from exc


def _import_error(name: str, error: BaseException) -> LoadError:
    """Return an error with the last line of the traceback, and its location in the module."""
    summary = traceback.format_exception_only(error)[-1].strip()
    return LoadError(f"the module {name} cannot be imported: {summary}{_error_location(error)}")


def _error_location(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f" at {error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
