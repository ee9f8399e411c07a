"""Set-up of Spark executors on other machines: send the package, and check for modules and directories."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fiveways.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import SparkContext

REQUIRED_MODULES: Final = {"pyarrow": "pyarrow", "numpy": "numpy", "msgspec": "msgspec", "google.protobuf": "protobuf"}
"""Modules needed where segments are read, and their names for `pip`."""
SOURCE_ROOT: Final = Path(__file__).parents[2]
"""Directory that contains the package."""
_PROBES_PER_CORE: Final = 2
"""Probe tasks per core; more than one makes it likely that every machine runs one."""

ProbeResult = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Host name, missing modules, and directories that are not visible there."""


def needs_package(master: str) -> bool:
    """Return True if workers are not child processes of this one; with a `local` master they are."""
    return master != "local" and not master.startswith("local[")


@contextmanager
def package_on_workers(context: "SparkContext", directories: Sequence[str]) -> Iterator[None]:
    """Send the package to the workers of a cluster and check their environment.

    Args:
        context: The Spark context.
        directories: Directories that workers must be able to read or write.

    Raises:
        PipelineError: A worker lacks a module or does not see a directory.
    """
    if not needs_package(context.master or ""):
        yield
        return
    folder = tempfile.mkdtemp(prefix="fiveways-")
    try:
        context.addPyFile(str(build_package_zip(Path(folder) / "fiveways.zip")))
        probes = _PROBES_PER_CORE * context.defaultParallelism
        results = context.parallelize(range(probes), probes).mapPartitions(make_probe(directories)).collect()
        if problems := describe_problems(results):
            raise PipelineError(problems)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_package_zip(target: Path) -> Path:
    """Write the package's modules into an importable zip file."""
    package = SOURCE_ROOT / "fiveways"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*.py")):
            file.write(path, path.relative_to(SOURCE_ROOT))
    return target


def make_probe(directories: Sequence[str]) -> Callable[[Iterable[int]], Iterable[ProbeResult]]:
    """Return a function that checks a worker; it must not use this package, which the worker may lack."""
    modules = tuple(REQUIRED_MODULES)
    required = tuple(directories)

    def probe(_: Iterable[int]) -> Iterable[ProbeResult]:
        import importlib  # noqa: PLC0415
        import pathlib  # noqa: PLC0415
        import socket  # noqa: PLC0415

        missing = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        unseen = tuple(path for path in required if "://" not in path and not pathlib.Path(path).is_dir())
        yield socket.gethostname(), tuple(missing), unseen

    return probe


def describe_problems(results: Iterable[ProbeResult]) -> str:
    """Describe the first problem found by the probes; return an empty string if there is none."""
    missing_on: dict[str, set[str]] = {}
    unseen_on: dict[str, set[str]] = {}
    for host, missing, unseen in results:
        for name in missing:
            missing_on.setdefault(REQUIRED_MODULES[name], set()).add(host)
        for path in unseen:
            unseen_on.setdefault(path, set()).add(host)
    if missing_on:
        hosts = ", ".join(sorted(set[str]().union(*missing_on.values())))
        packages = ", ".join(sorted(missing_on))
        return f"Spark's workers lack {packages} (on {hosts}); install it for the Python that they run"
    if unseen_on:
        path, hosts_without = next(iter(unseen_on.items()))
        hosts = ", ".join(sorted(hosts_without))
        return f"Spark's workers do not see {path} (on {hosts}); on a cluster, use a directory that all machines share"
    return ""
