"""The architecture of the package: allowed imports, layers without sockets, protocol folders, and length limits.

Each check takes the folder of a package and yields its findings as sentences, so it can be tested on bad packages too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "fiveways"

# The layers that each layer may import besides itself. `.` is the package's own __init__.py with the public API.
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
    ".": CORE | {"app", "client", "runtime", "schemas"},
    "cli": CORE
    | {".", "app", "client", "hub", "journal", "pipeline", "protocols", "runtime", "schemas", "settings", "store"}
    | {"demo", "replay", "traffic"},
    "__main__": {"cli"},
}

# Additional imports of single folders: a Spark pipeline is a client session like others, and the example
# application only uses the public API.
FOLDERS: dict[tuple[str, ...], set[str]] = {("pipeline", "peer"): {"client"}, ("demo", "app"): {"."}}

# Layers without sockets, timers and coroutines: timestamps and a random source are passed to them.
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

# Only the protocol registry may import every protocol; no protocol may use the registry for another protocol.
REGISTRY = "registry"
SHARED = {"umq_family": "code shared by the two dialects of UMQ"}
FILES = {
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
        "json_frames.py": "the JSON encoding",
        "cbor_frames.py": "the CBOR encoding",
        "conversation_base.py": "the frame level of the conversation: packets, handshake, attachments",
        "fastpath.py": "the fast path of plain calls, results and publications in JSON",
        "incoming.py": "requests and subscriptions of the peer, and our responses",
        "outgoing.py": "records of our requests and subscriptions",
        "deferred_messages.py": "messages that wait for their attachments",
    },
    "mqtt_rpc": {
        "rpc.proto": "the messages, defined in protobuf",
        "rpc_pb2.py": "code generated from rpc.proto",
        "rpc_pb2.pyi": "types of the generated code",
        "attachments.py": "attachments in a field of the method's own message",
        "echo_filter.py": "detection of our own messages that a broker sends back",
        "fastpath.py": "the fast path of unary calls and responses",
        "requests.py": "open and recently finished requests",
    },
    "nq": {
        "session_state.py": "state shared by both directions: identifiers, byte budgets, subscriptions",
        "incoming.py": "requests of the peer",
        "responses.py": "responses to requests of the peer",
        "outgoing.py": "our requests, and the answers of the peer",
        "outgoing_requests.py": "the table of our requests, with expiry and restarts of the peer",
        "requests.py": "open requests in both directions, with their state",
        "streams.py": "streamed requests and answers",
        "retransmission.py": "the queue of messages, with retransmission until the peer reacts",
        "dedup.py": "deduplication by tombstones and refusals",
        "errors.py": "error objects with text templates",
        "fastpath.py": "the fast path of plain requests, acknowledgements and answers",
        "options.py": "configuration: delays, windows and limits",
        "serializer.py": "serialization of messages",
    },
}

GENERATED = {"rpc_pb2.py"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 65


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the path and the syntax tree of each module, without the schema compiler's output."""
    for path in sorted(package.rglob("*.py")):
        if path.name not in GENERATED:
            yield path.relative_to(package), ast.parse(path.read_text(encoding="utf-8"), str(path))


def layer_of(path: Path) -> str:
    top = path.parts[0].removesuffix(".py")
    return "." if top == "__init__" else top


def folder_of(path: Path) -> tuple[str, ...]:
    """Return the layer and the folder or module in it."""
    return tuple(part.removesuffix(".py") for part in path.parts[:2])


def imports(package: Path, path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the absolute dotted name of each import."""
    home = (package.name, *path.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = home[: len(home) - node.level + 1] if node.level else ()
            origin = ".".join((*start, *filter(None, [node.module])))
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def own_imports(package: Path, path: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield the imports from the package itself as tuples without the package name."""
    for name in imports(package, path, tree):
        top, *rest = name.split(".")
        if top == package.name:
            yield tuple(rest)


def is_inside(package: Path, *parts: str) -> bool:
    """Return whether a module or a folder of that name exists in the package."""
    place = package.joinpath(*parts)
    return place.is_dir() or place.with_suffix(".py").is_file()


def layer_findings(package: Path) -> Iterator[str]:
    for path, tree in modules(package):
        layer = layer_of(path)
        if layer not in LAYERS:
            yield f"{path}: {layer} is not in the table of layers"
            continue
        for parts in own_imports(package, path, tree):
            # Other names are from the package's own __init__.py.
            target = parts[0] if parts and is_inside(package, parts[0]) else "."
            if target != layer and target not in LAYERS[layer] | FOLDERS.get(folder_of(path), set()):
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
            # A random source is passed in; its type may be imported.
            if layer in PURE and module in IMPURE_MODULES and name != "random.Random":
                yield f"{path}: {layer} may not import {name}"
            if layer != ONLY_IN.get(module, layer):
                yield f"{path}: only {ONLY_IN[module]} may import {name}"
        if layer in PURE:
            yield from (f"{path}:{line}: {layer} may not {action}" for line, action in waits_and_clocks(tree))


def waits_and_clocks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, f"define async {node.name}"
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if any(dotted == name or dotted.endswith(f".{name}") for name in IMPURE_NAMES):
                yield node.lineno, f"read the clock with {dotted}"


def protocol_folders(package: Path) -> list[Path]:
    """Return the protocol folders, without remains of deleted protocols that contain only bytecode."""
    folders = (folder for folder in (package / "protocols").glob("*") if folder.is_dir() and content(folder))
    return sorted(folder for folder in folders if folder.name not in {*SHARED, "__pycache__"})


def content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


def folder_findings(package: Path) -> Iterator[str]:
    for folder in protocol_folders(package):
        names = content(folder)
        yield from (f"{folder.name}: {name} is missing" for name in sorted(FILES - names))
        unexpected = names - FILES - EXTRAS.get(folder.name, {}).keys()
        yield from (f"{folder.name}: {name} is not allowed in a protocol folder" for name in sorted(unexpected))
        vectors = sorted((folder / "vectors").glob("*"))
        if "vectors" in names and not vectors:
            yield f"{folder.name}: vectors/ is empty"
        yield from (f"{folder.name}: vectors/{path.name} is not JSON" for path in vectors if path.suffix != ".json")


def length_findings(package: Path) -> Iterator[str]:
    for path, tree in modules(package):
        length = len((package / path).read_text(encoding="utf-8").splitlines())
        if length > MAX_FILE_LINES:
            yield f"{path}: {length} lines, at most {MAX_FILE_LINES} are allowed"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
                if length > MAX_FUNCTION_LINES:
                    place = f"{path}:{node.lineno}: {node.name}"
                    yield f"{place} has {length} lines, at most {MAX_FUNCTION_LINES} are allowed"


def docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a docstring, which may be as long as users need it."""
    if ast.get_docstring(function) is None:
        return 0
    docstring = function.body[0]
    return (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1


def assert_no_findings(findings: Iterator[str]) -> None:
    sentences = list(findings)
    assert not sentences, "\n".join(["", *sentences])


CHECKS = [layer_findings, sideways_findings, purity_findings, folder_findings, length_findings]


def test_package_path_is_right() -> None:
    assert {"errors.py", "model", "protocols", "wire"} <= content(PACKAGE)


def test_layers_import_only_allowed_layers() -> None:
    assert_no_findings(layer_findings(PACKAGE))


def test_protocols_do_not_import_each_other() -> None:
    assert_no_findings(sideways_findings(PACKAGE))


def test_core_has_no_clock_random_source_or_waiting() -> None:
    assert_no_findings(purity_findings(PACKAGE))


def test_protocol_folders_have_the_same_files() -> None:
    assert_no_findings(folder_findings(PACKAGE))


def test_files_and_functions_stay_short() -> None:
    assert_no_findings(length_findings(PACKAGE))


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
    ("util.py", "", "util is not in the table of layers"),
    ("protocols/umq/frames.py", "import fiveways.protocols.nq", "may not import fiveways.protocols.nq"),
    ("protocols/umq/frames.py", "from ..nq import outgoing", "may not import fiveways.protocols.nq.outgoing"),
    ("protocols/umq/frames.py", "from fiveways.protocols import nq", "may not import fiveways.protocols.nq"),
    ("protocols/umq/frames.py", "from .. import registry", "may not import fiveways.protocols.registry"),
    ("protocols/base.py", "from fiveways.protocols.umq import SPEC", "may not import fiveways.protocols.umq.SPEC"),
    ("wire/packet.py", "import asyncio", "wire may not import asyncio"),
    ("model/names.py", "from time import monotonic", "model may not import time.monotonic"),
    ("hub/core.py", "import random", "hub may not import random"),
    ("hub/core.py", "from random import Random, random", "hub may not import random.random"),
    ("hub/core.py", "import datetime as d\nd.datetime.now()", "may not read the clock with d.datetime.now"),
    ("hub/core.py", "async def handle() -> None: ...", "hub may not define async handle"),
    ("runtime/peer_connection.py", "from pyspark.sql import Row", "only pipeline may import pyspark.sql.Row"),
    ("protocols/nq/helpers.py", "", "nq: helpers.py is not allowed in a protocol folder"),
    ("protocols/umq/outgoing.py", "", "umq: outgoing.py is not allowed in a protocol folder"),
    ("protocols/umq/vectors/notes.txt", "", "umq: vectors/notes.txt is not JSON"),
    ("protocols/half/__init__.py", "", "half: frames.py is missing"),
    ("wire/packet.py", "\n" * 501, "501 lines, at most 500 are allowed"),
    ("wire/packet.py", "def long() -> None:\n" + "    pass\n" * 65, "long has 66 lines, at most 65 are allowed"),
]


@pytest.fixture
def good_package(tmp_path: Path) -> Path:
    package = tmp_path / "fiveways"
    file_names = [name for name in FILES if name != "vectors"] + ["vectors/calls.json"]
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
    files += [f"protocols/{protocol}/{name}" for protocol in ("umq", "nq") for name in file_names]
    for name in [*files, "protocols/nq/outgoing.py"]:
        write(package / name, "")
    write(
        package / "protocols/nq/frames.py",
        "from random import Random\nfrom . import outgoing\nfrom ..base import Role\n",
    )
    write(package / "pipeline/peer/data_source.py", "from fiveways.client.peer import Peer\n")
    write(
        package / "protocols/umq/frames.py",
        "from fiveways.protocols.umq.states import State\nfrom fiveways import model\n",
    )
    return package


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_good_package_has_no_findings(good_package: Path) -> None:
    assert [finding for check in CHECKS for finding in check(good_package)] == []


@pytest.mark.parametrize(("name", "text", "finding"), VIOLATIONS)
def test_violation_is_found(good_package: Path, name: str, text: str, finding: str) -> None:
    write(good_package / name, text)
    findings = [sentence for check in CHECKS for sentence in check(good_package)]
    assert any(finding in sentence for sentence in findings), findings


def test_incomplete_protocol_folder_is_found(good_package: Path) -> None:
    (good_package / "protocols/umq/states.py").unlink()
    (good_package / "protocols/nq/vectors/calls.json").unlink()
    assert list(folder_findings(good_package)) == ["nq: vectors/ is empty", "umq: states.py is missing"]
