"""Folders of the repository."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The root of the repository."""
VECTOR_FOLDER: Final = ROOT / "tests" / "conformance" / "vectors"
"""Test vectors that are not specific to one protocol."""
PROTO_FOLDER: Final = ROOT / "tests" / "support" / "proto"
"""Protobuf schemas of the tests."""
