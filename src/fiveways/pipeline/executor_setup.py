"""What workers on other machines need: the package itself, which is sent to them, and others, which are only named."""

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
"""Modules that are used where segments are read, and how `pip` calls them."""
SOURCE_ROOT: Final = Path(__file__).parents[2]
"""The directory that the package is in."""
_PROBES_PER_CORE: Final = 2
"""Tasks for each core that answer what is missing, so that every machine is likely to be asked."""

ProbeResult = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A machine, the modules that it lacks, and the directories that it does not see."""


def needs_package(master: str) -> bool:
    """Say whether workers are processes that do not have what we have; those of `local` are ours."""
    return master != "local" and not master.startswith("local[")


@contextmanager
def package_on_workers(context: "SparkContext", directories: Sequence[str]) -> Iterator[None]:
    """Send the package to the workers of a cluster; PipelineError if they lack anything else.

    Args:
        context: Spark, wherever it runs.
        directories: What workers must be able to read, or write in.
    """
    if not needs_package(context.master or ""):
        yield
        return
    folder = tempfile.mkdtemp(prefix="fiveways-")
    try:
        context.addPyFile(str(build_package_zip(Path(folder) / "fiveways.zip")))
        number = _PROBES_PER_CORE * context.defaultParallelism
        found = context.parallelize(range(number), number).mapPartitions(make_probe(directories)).collect()
        if sentence := describe_problems(found):
            raise PipelineError(sentence)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_package_zip(target: Path) -> Path:
    """Write the package's modules into a zip file that Python can import from."""
    package = SOURCE_ROOT / "fiveways"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(package.rglob("*.py")):
            file.write(path, path.relative_to(SOURCE_ROOT))
    return target


def make_probe(directories: Sequence[str]) -> Callable[[Iterable[int]], Iterable[ProbeResult]]:
    """Return what a worker is asked. It travels as it is, and needs nothing of this package."""
    modules = tuple(REQUIRED_MODULES)
    wanted = tuple(directories)

    def ask(_: Iterable[int]) -> Iterable[ProbeResult]:
        import importlib  # noqa: PLC0415
        import pathlib  # noqa: PLC0415
        import socket  # noqa: PLC0415

        missing = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        unseen = tuple(each for each in wanted if "://" not in each and not pathlib.Path(each).is_dir())
        yield socket.gethostname(), tuple(missing), unseen

    return ask


def describe_problems(found: Iterable[ProbeResult]) -> str:
    """Return what is wrong with the workers, in a sentence; nothing if nothing is."""
    lacking: dict[str, set[str]] = {}
    blind: dict[str, set[str]] = {}
    for host, missing, unseen in found:
        for name in missing:
            lacking.setdefault(REQUIRED_MODULES[name], set()).add(host)
        for path in unseen:
            blind.setdefault(path, set()).add(host)
    if lacking:
        hosts = ", ".join(sorted(set[str]().union(*lacking.values())))
        return f"Spark's workers lack {', '.join(sorted(lacking))} (on {hosts}); install that for the Python they run"
    if blind:
        path, where = next(iter(blind.items()))
        hosts = ", ".join(sorted(where))
        return f"Spark's workers do not see {path} (on {hosts}); on a cluster it has to be a directory that all share"
    return ""
