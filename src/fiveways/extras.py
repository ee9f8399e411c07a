"""Extras of the package: optional dependencies that are imported at runtime."""

import importlib.util
from collections.abc import Mapping
from typing import Final

from fiveways.errors import MissingExtra

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "journal": ("numpy", "pyarrow"),
    "hub": ("numpy", "plotly", "pyarrow", "uvloop"),
    "pipeline": ("numpy", "pandas", "pyarrow", "pyspark"),
    "tracing": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk", "requests"),
}
"""Modules by extra; the project metadata in pyproject.toml has the packages."""


def require(extra: str, by: str) -> None:
    """Raise `MissingExtra` unless all modules of an extra can be imported; `by` names the feature that needs them."""
    if not all(map(_is_installed, MODULES[extra])):
        raise MissingExtra(extra, by)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a parent package is missing
        return False
