"""Commands import only the modules that they need."""

import subprocess
import sys

import pytest

from tests.support.hubs import environment


@pytest.mark.parametrize("module", ["journal_commands", "tail", "trace", "replay", "report", "serve"])
def test_commands_outside_the_pipeline_do_not_import_spark(module: str) -> None:
    program = f"import sys, fiveways.cli.{module}; sys.exit('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), timeout=300, check=False)  # noqa: S603
    assert done.returncode == 0
