"""Descriptor set files: what protoc writes about .proto files, and how services come out of it.

Each file has a pool of its own, so that two sets may hold different versions of one import, and neither meets the
messages of this process.
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
"""The number of `method` in ServiceDescriptorProto; a comment has the numbers that lead to what it describes."""


def load_services(paths: Iterable[Path | str]) -> Mapping[str, Service]:
    """Return the services of descriptor set files by their full names, such as `demo.Greeter`.

    Sets share their imports, so one service may come twice, if its file is the same in both.

    Raises:
        SchemaError: a file cannot be read, is no descriptor set, lacks imports or services, or two files have
            different services of one name.
    """
    services: dict[str, Service] = {}
    origins: dict[str, tuple[Path, bytes]] = {}
    for given in paths:
        path = Path(given)
        for file, service in _services_of(path):
            origin = path, _without_comments(file)
            known, content = origins.setdefault(service.full_name, origin)
            if content != origin[1]:
                raise SchemaError(f"{known} and {path} have different services {service.full_name}")
            services.setdefault(service.full_name, service)
    return services


def _services_of(path: Path) -> Iterator[tuple[FileDescriptorProto, Service]]:
    files = _files_of(path)
    pool = DescriptorPool()
    found = False
    for name in _sort_by_imports(path, files):
        file = files[name]
        try:
            # The pool has no use for the comments.
            descriptor = pool.AddSerializedFile(_without_comments(file))
        except TypeError as exc:
            raise SchemaError(f"{path}: {name} is no schema that can be used: {exc}") from exc
        docs = _docs_of(file)
        for index, service in enumerate(descriptor.services_by_name.values()):
            found = True
            try:
                yield file, Service.from_descriptor(service, docs.get(index, {}))
            except SchemaError as exc:
                raise SchemaError(f"{path}: {exc}") from exc
    if not found:
        raise SchemaError(f"{path} describes no service")


def _files_of(path: Path) -> dict[str, FileDescriptorProto]:
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise SchemaError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    try:
        found = FileDescriptorSet.FromString(content).file
    except DecodeError as exc:
        raise _not_a_set(path) from exc
    files = {file.name: file for file in found}
    # Protobuf takes most short texts, and the empty one, for a message.
    if not files or "" in files:
        raise _not_a_set(path)
    if len(files) != len(found):
        raise SchemaError(f"{path} has one file twice")
    return files


def _not_a_set(path: Path) -> SchemaError:
    return SchemaError(f"{path} is no descriptor set; {_PROTOC_COMMAND.format(path.with_suffix('.binpb'))} makes one")


def _sort_by_imports(path: Path, files: Mapping[str, FileDescriptorProto]) -> Iterator[str]:
    """Give the files in an order in which each comes after what it imports."""
    for name, file in files.items():
        missing = [wanted for wanted in file.dependency if wanted not in files]
        if missing:
            raise SchemaError(
                f"{path} lacks {', '.join(missing)}, which {name} imports; "
                f"{_PROTOC_COMMAND.format(path)} makes it with all imports"
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
    """Return the comments of each service by its index: those of methods by their names, its own by the empty one."""
    docs: dict[int, dict[str, str]] = {}
    for location in file.source_code_info.location:
        place = tuple(location.path)
        if len(place) not in {2, 4} or place[0] != _SERVICE or not 0 <= place[1] < len(file.service):
            continue
        methods = file.service[place[1]].method
        if len(place) == 2:
            name = ""
        elif place[2] == _METHOD_FIELD and 0 <= place[3] < len(methods):
            name = methods[place[3]].name
        else:
            continue
        if text := _clean_comment(location.leading_comments or location.trailing_comments):
            docs.setdefault(place[1], {})[name] = text
    return docs


def _clean_comment(comment: str) -> str:
    """Take away the blank that follows `//` and what is at both ends; lines stay lines."""
    return "\n".join(line.removeprefix(" ").rstrip() for line in comment.splitlines()).strip()
