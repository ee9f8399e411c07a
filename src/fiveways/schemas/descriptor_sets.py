"""Loads services from descriptor set files, the compiler output of protoc.

Each file has a descriptor pool of its own: two sets may have different versions of an import, and neither conflicts
with the generated descriptors of this process.
"""

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from fiveways.schemas.services import SchemaError, Service

_PROTOC_COMMAND = "protoc --include_imports --descriptor_set_out={} your.proto"

_SERVICE = FileDescriptorProto.SERVICE_FIELD_NUMBER
_METHOD_FIELD = 2
"""Field number of `method` in ServiceDescriptorProto; the path of a comment consists of such numbers."""


def load_services(paths: Iterable[Path | str]) -> Mapping[str, Service]:
    """Return the services of descriptor set files by full name, such as `demo.Greeter`.

    Sets share their imports: a service may occur in several, if its file is the same.

    Raises:
        SchemaError: a file cannot be read, is not a descriptor set, lacks imports or services, or two files define
            different services of one name.
    """
    services: dict[str, Service] = {}
    origins: dict[str, tuple[Path, bytes]] = {}
    for item in paths:
        path = Path(item)
        for file, service in _services_of(path):
            origin = path, _without_comments(file)
            first_path, content = origins.setdefault(service.full_name, origin)
            if content != origin[1]:
                raise SchemaError(f"{first_path} and {path} have different services {service.full_name}")
            services.setdefault(service.full_name, service)
    return services


def _services_of(path: Path) -> Iterator[tuple[FileDescriptorProto, Service]]:
    files = _files_of(path)
    pool = DescriptorPool()
    has_services = False
    for name in _sort_by_imports(path, files):
        file = files[name]
        try:
            # The pool does not need the comments.
            descriptor = pool.AddSerializedFile(_without_comments(file))
        except TypeError as exc:
            raise SchemaError(f"{path}: {name} is not a usable schema: {exc}") from exc
        docs = _docs_of(file)
        for index, service in enumerate(descriptor.services_by_name.values()):
            has_services = True
            try:
                yield file, Service.from_descriptor(service, docs.get(index, {}))
            except SchemaError as exc:
                raise SchemaError(f"{path}: {exc}") from exc
    if not has_services:
        raise SchemaError(f"{path} describes no service")


def _files_of(path: Path) -> dict[str, FileDescriptorProto]:
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise SchemaError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    try:
        file_descriptors = FileDescriptorSet.FromString(content).file
    except DecodeError as exc:
        raise _not_a_set(path) from exc
    files = {file.name: file for file in file_descriptors}
    # Protobuf parses most short texts, and the empty one, as a message.
    if not files or "" in files:
        raise _not_a_set(path)
    if len(files) != len(file_descriptors):
        raise SchemaError(f"{path} contains a file twice")
    return files


def _not_a_set(path: Path) -> SchemaError:
    return SchemaError(
        f"{path} is not a descriptor set; create one with {_PROTOC_COMMAND.format(path.with_suffix('.binpb'))}"
    )


def _sort_by_imports(path: Path, files: Mapping[str, FileDescriptorProto]) -> Iterator[str]:
    """Yield the files in an order in which imports come first."""
    for name, file in files.items():
        missing = [dependency for dependency in file.dependency if dependency not in files]
        if missing:
            raise SchemaError(
                f"{path} lacks {', '.join(missing)}, which {name} imports; "
                f"create it with all imports: {_PROTOC_COMMAND.format(path)}"
            )
    try:
        yield from TopologicalSorter({name: file.dependency for name, file in files.items()}).static_order()
    except CycleError as exc:
        raise SchemaError(f"{path} has files that import each other") from exc


def _without_comments(file: FileDescriptorProto) -> bytes:
    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    bare.ClearField("source_code_info")
    return bare.SerializeToString(deterministic=True)


def _docs_of(file: FileDescriptorProto) -> dict[int, dict[str, str]]:
    """Return the comments of each service by index: those of methods by name, its own by the empty name."""
    docs: dict[int, dict[str, str]] = {}
    for location in file.source_code_info.location:
        source_path = tuple(location.path)
        if len(source_path) not in {2, 4} or source_path[0] != _SERVICE or not 0 <= source_path[1] < len(file.service):
            continue
        methods = file.service[source_path[1]].method
        if len(source_path) == 2:
            name = ""
        elif source_path[2] == _METHOD_FIELD and 0 <= source_path[3] < len(methods):
            name = methods[source_path[3]].name
        else:
            continue
        if text := _clean_comment(location.leading_comments or location.trailing_comments):
            docs.setdefault(source_path[1], {})[name] = text
    return docs


def _clean_comment(comment: str) -> str:
    """Strip the blank that follows `//`, and blank lines at both ends."""
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.splitlines()).strip()
