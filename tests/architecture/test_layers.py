"""The shape of the package: who may import whom, where no clock is, what a protocol folder holds, how long is too long.

Each check takes the folder of a package and gives its findings as sentences, so that it can be tried on bad ones too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "fiveways"

# What each layer may import besides itself. `.` is the package's own __init__.py, which only says the public names.
CORE = {"errors", "extras", "wire", "model"}
LAYERS = {
    "errors": set[str](),
    "extras": {"errors"},
    "wire": {"errors"},
    "model": {"errors", "wire"},
    "protocols": CORE,
    "hub": CORE,
    "store": CORE,
    "journal": CORE,
    "transports": CORE,
    "app": CORE,
    "schemas": CORE,
    "settings": CORE | {"hub"},
    "client": CORE | {"protocols", "transports", "app", "schemas"},
    "runtime": CORE | {"protocols", "hub", "store", "journal", "transports", "app", "schemas", "settings"},
    "traffic": CORE | {"app", "client"},
    "pipeline": CORE | {"protocols", "journal"},
    "replay": CORE | {"journal", "client", "transports", "protocols", "pipeline"},
    "demo": CORE | {"app", "client", "journal", "pipeline", "schemas"},
    ".": CORE | {"app", "client"},
    "cli": CORE
    | {".", "app", "client", "hub", "journal", "pipeline", "protocols", "runtime", "schemas", "settings", "store"}
    | {"demo", "replay", "traffic"},
    "__main__": {"cli"},
}

# Additional imports of single rooms: Spark as a peer is a client like any other, and the example
# application is written as users write theirs.
ROOMS: dict[tuple[str, ...], set[str]] = {("pipeline", "peer"): {"client"}, ("demo", "app"): {"."}}

# Layers that are told the time and handed their chance, and never wait.
PURE = {"wire", "model", "protocols", "hub"}
IMPURE_MODULES = {
    "asyncio",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
}
IMPURE_NAMES = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
ONLY_IN = {"pyspark": "pipeline"}

# The one module that may name every protocol, and that none of them may ask for another.
REGISTRY = "registry"
SHARED = {"umq_family": "what the two dialects of UMQ have in common"}
SHAPE = {
    "README.md",
    "__init__.py",
    "bridge.py",
    "conversation.py",
    "frames.py",
    "messages.py",
    "states.py",
    "vectors",
}
EXTRAS = {
    "lrpm": {
        "json_frames.py": "one protocol, two encodings: JSON",
        "cbor_frames.py": "and CBOR",
        "conversation_base.py": "the lower half of the conversation: frames and handshake",
        "incoming.py": "requests of the peer, and our responses",
        "outgoing.py": "our requests to the peer",
        "deferred_messages.py": "messages that wait for their attachments",
    },
    "mqtt_rpc": {
        "rpc.proto": "the messages, defined in protobuf",
        "rpc_pb2.py": "generated from it",
        "rpc_pb2.pyi": "its types",
        "attachments.py": "attachments, in a field of the method's own message",
        "echo_filter.py": "our own messages, which a broker sends back",
        "fastpath.py": "the fast path of calls and responses in one piece",
        "requests.py": "open requests, and requests and responses in parts",
    },
    "nq": {
        "session_state.py": "the state that requests and responses share: identifiers, budgets, subscriptions",
        "incoming.py": "requests of the peer",
        "responses.py": "our responses to them",
        "outgoing.py": "our requests to the peer",
        "outgoing_requests.py": "the table of our requests, and the restart of a peer",
        "requests.py": "the open requests, and the state of each",
        "streams.py": "requests and responses in parts",
        "retransmission.py": "messages that are sent again until the peer reacts",
        "dedup.py": "finished requests, so that a copy is not run again",
        "errors.py": "error objects, which have a template language of their own",
        "fastpath.py": "the fast path of simple requests, acknowledgements and responses",
        "options.py": "delays, windows and bounds, all configurable",
        "serializer.py": "the bytes of each message",
    },
}

GENERATED = {"rpc_pb2.py"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 65


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Every module we wrote: its path within the package, and its syntax tree."""
    for path in sorted(package.rglob("*.py")):
        if path.name not in GENERATED:
            yield path.relative_to(package), ast.parse(path.read_text(encoding="utf-8"), str(path))


def layer_of(path: Path) -> str:
    top = path.parts[0].removesuffix(".py")
    return "." if top == "__init__" else top


def room_of(path: Path) -> tuple[str, ...]:
    """The layer and the folder or module in it."""
    return tuple(part.removesuffix(".py") for part in path.parts[:2])


def imports(package: Path, path: Path, tree: ast.Module) -> Iterator[str]:
    """The dotted name of every module or name that is imported, relative ones made absolute."""
    home = (package.name, *path.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = home[: len(home) - node.level + 1] if node.level else ()
            origin = ".".join((*start, *filter(None, [node.module])))
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def own_imports(package: Path, path: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Imports from the package itself, as parts below its name."""
    for name in imports(package, path, tree):
        top, *rest = name.split(".")
        if top == package.name:
            yield tuple(rest)


def is_inside(package: Path, *parts: str) -> bool:
    """Whether a module or a folder of that name exists below the package."""
    place = package.joinpath(*parts)
    return place.is_dir() or place.with_suffix(".py").is_file()


def layer_findings(package: Path) -> Iterator[str]:
    for path, tree in modules(package):
        layer = layer_of(path)
        if layer not in LAYERS:
            yield f"{path}: {layer} is no layer; the table in this test names them all"
            continue
        for parts in own_imports(package, path, tree):
            # A name that is no module below the package comes out of the package's own __init__.py.
            target = parts[0] if parts and is_inside(package, parts[0]) else "."
            if target != layer and target not in LAYERS[layer] | ROOMS.get(room_of(path), set()):
                yield f"{path}: {layer} may not import {'.'.join((package.name, *parts))}"


def sideways_findings(package: Path) -> Iterator[str]:
    folders = {folder.name for folder in protocol_folders(package)}
    for path, tree in modules(package):
        if path.parts[0] != "protocols" or path.name == f"{REGISTRY}.py":
            continue
        own = path.parts[1]
        forbidden = folders - {own} | ({REGISTRY} if own in folders else set())
        for parts in own_imports(package, path, tree):
            if parts[0] == "protocols" and len(parts) > 1 and parts[1] in forbidden:
                yield f"{path}: may not import {'.'.join((package.name, *parts))}"


def purity_findings(package: Path) -> Iterator[str]:
    for path, tree in modules(package):
        layer = layer_of(path)
        for name in imports(package, path, tree):
            module = name.partition(".")[0]
            # Chance itself is passed in; its type must be sayable.
            if layer in PURE and module in IMPURE_MODULES and name != "random.Random":
                yield f"{path}: {layer} may not import {name}"
            if layer != ONLY_IN.get(module, layer):
                yield f"{path}: only {ONLY_IN[module]} may import {name}"
        if layer in PURE:
            yield from (f"{path}:{line}: {layer} may not {what}" for line, what in waits_and_clocks(tree))


def waits_and_clocks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, f"wait, as async {node.name} would"
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if any(dotted == name or dotted.endswith(f".{name}") for name in IMPURE_NAMES):
                yield node.lineno, f"ask a clock, as {dotted} does"


def protocol_folders(package: Path) -> list[Path]:
    """The folders below protocols/; one that holds only bytecode is what a deleted protocol left behind."""
    folders = (folder for folder in (package / "protocols").glob("*") if folder.is_dir() and content(folder))
    return sorted(folder for folder in folders if folder.name not in {*SHARED, "__pycache__"})


def content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


def shape_findings(package: Path) -> Iterator[str]:
    for folder in protocol_folders(package):
        found = content(folder)
        yield from (f"{folder.name}: {name} is missing" for name in sorted(SHAPE - found))
        strange = found - SHAPE - EXTRAS.get(folder.name, {}).keys()
        yield from (f"{folder.name}: {name} is not part of the shape" for name in sorted(strange))
        vectors = sorted((folder / "vectors").glob("*"))
        if "vectors" in found and not vectors:
            yield f"{folder.name}: vectors/ is empty"
        yield from (f"{folder.name}: vectors/{path.name} is no JSON" for path in vectors if path.suffix != ".json")


def length_findings(package: Path) -> Iterator[str]:
    for path, tree in modules(package):
        length = len((package / path).read_text(encoding="utf-8").splitlines())
        if length > LONGEST_FILE:
            yield f"{path}: {length} lines, {LONGEST_FILE} are enough"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield f"{path}:{node.lineno}: {node.name} has {length} lines, {LONGEST_FUNCTION} are enough"


def assert_nothing_found(findings: Iterator[str]) -> None:
    found = list(findings)
    assert not found, "\n".join(["", *found])


CHECKS = [layer_findings, sideways_findings, purity_findings, shape_findings, length_findings]


def test_the_package_is_where_the_checks_look() -> None:
    assert {"errors.py", "model", "protocols", "wire"} <= content(PACKAGE)


def test_layers_import_only_what_lies_below_them() -> None:
    assert_nothing_found(layer_findings(PACKAGE))


def test_protocols_do_not_know_each_other() -> None:
    assert_nothing_found(sideways_findings(PACKAGE))


def test_the_core_has_no_clock_no_chance_and_no_waiting() -> None:
    assert_nothing_found(purity_findings(PACKAGE))


def test_protocol_folders_have_one_shape() -> None:
    assert_nothing_found(shape_findings(PACKAGE))


def test_files_and_functions_stay_short() -> None:
    assert_nothing_found(length_findings(PACKAGE))


VIOLATIONS = [
    ("errors.py", "import fiveways.wire.packet", "errors may not import fiveways.wire.packet"),
    ("errors.py", "from fiveways import wire", "errors may not import fiveways.wire"),
    ("errors.py", "from . import wire", "errors may not import fiveways.wire"),
    ("wire/packet.py", "from ..model.names import fold", "wire may not import fiveways.model.names.fold"),
    ("wire/packet.py", "def late() -> None:\n    import fiveways.model", "wire may not import fiveways.model"),
    ("model/names.py", "from fiveways.protocols.base import Role", "model may not import fiveways.protocols.base.Role"),
    ("model/names.py", "from fiveways import connect", "model may not import fiveways.connect"),
    ("hub/core.py", "import fiveways.protocols.umq", "hub may not import fiveways.protocols.umq"),
    ("pipeline/gold.py", "import fiveways.runtime", "pipeline may not import fiveways.runtime"),
    ("pipeline/gold.py", "import fiveways.client", "pipeline may not import fiveways.client"),
    ("pipeline/peer/data_source.py", "import fiveways.hub", "pipeline may not import fiveways.hub"),
    ("util.py", "", "util is no layer"),
    ("protocols/umq/frames.py", "import fiveways.protocols.nq", "may not import fiveways.protocols.nq"),
    ("protocols/umq/frames.py", "from ..nq import outgoing", "may not import fiveways.protocols.nq.outgoing"),
    ("protocols/umq/frames.py", "from fiveways.protocols import nq", "may not import fiveways.protocols.nq"),
    ("protocols/umq/frames.py", "from .. import registry", "may not import fiveways.protocols.registry"),
    ("protocols/base.py", "from fiveways.protocols.umq import SPEC", "may not import fiveways.protocols.umq.SPEC"),
    ("wire/packet.py", "import asyncio", "wire may not import asyncio"),
    ("model/names.py", "from time import monotonic", "model may not import time.monotonic"),
    ("hub/core.py", "import random", "hub may not import random"),
    ("hub/core.py", "from random import Random, random", "hub may not import random.random"),
    ("hub/core.py", "import datetime as d\nd.datetime.now()", "may not ask a clock, as d.datetime.now does"),
    ("hub/core.py", "async def handle() -> None: ...", "hub may not wait, as async handle would"),
    ("runtime/peer_connection.py", "from pyspark.sql import Row", "only pipeline may import pyspark.sql.Row"),
    ("protocols/nq/helpers.py", "", "nq: helpers.py is not part of the shape"),
    ("protocols/umq/outgoing.py", "", "umq: outgoing.py is not part of the shape"),
    ("protocols/umq/vectors/notes.txt", "", "umq: vectors/notes.txt is no JSON"),
    ("protocols/half/__init__.py", "", "half: frames.py is missing"),
    ("wire/packet.py", "\n" * 501, "501 lines, 500 are enough"),
    ("wire/packet.py", "def long() -> None:\n" + "    pass\n" * 65, "long has 66 lines, 65 are enough"),
]


@pytest.fixture
def good_package(tmp_path: Path) -> Path:
    package = tmp_path / "fiveways"
    shape = [name for name in SHAPE if name != "vectors"] + ["vectors/calls.json"]
    files = [
        "__init__.py",
        "errors.py",
        "wire/packet.py",
        "model/names.py",
        "hub/core.py",
        "runtime/peer_connection.py",
    ]
    files += [
        "client/peer.py",
        "pipeline/gold.py",
        "protocols/base.py",
        "protocols/registry.py",
        "protocols/gone/__pycache__/old.pyc",
    ]
    files += [f"protocols/{protocol}/{name}" for protocol in ("umq", "nq") for name in shape]
    for name in [*files, "protocols/nq/outgoing.py"]:
        put(package / name, "")
    put(
        package / "protocols/nq/frames.py",
        "from random import Random\nfrom . import outgoing\nfrom ..base import Role\n",
    )
    put(package / "pipeline/peer/data_source.py", "from fiveways.client.peer import Peer\n")
    put(
        package / "protocols/umq/frames.py",
        "from fiveways.protocols.umq.states import State\nfrom fiveways import model\n",
    )
    return package


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_good_package_is_left_in_peace(good_package: Path) -> None:
    assert [finding for check in CHECKS for finding in check(good_package)] == []


@pytest.mark.parametrize(("name", "text", "finding"), VIOLATIONS)
def test_a_violation_is_found(good_package: Path, name: str, text: str, finding: str) -> None:
    put(good_package / name, text)
    findings = [found for check in CHECKS for found in check(good_package)]
    assert any(finding in found for found in findings), findings


def test_an_incomplete_protocol_folder_is_found(good_package: Path) -> None:
    (good_package / "protocols/umq/states.py").unlink()
    (good_package / "protocols/nq/vectors/calls.json").unlink()
    assert list(shape_findings(good_package)) == ["nq: vectors/ is empty", "umq: states.py is missing"]
