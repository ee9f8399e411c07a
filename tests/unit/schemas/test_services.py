"""Services from generated code and from descriptor sets."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fiveways.schemas import Method, SchemaError, Service, load_services
from tests.support import compiled_schema

KINDS = {"SayHello": "unary", "Count": "server", "Sum": "client", "Chat": "both"}
SIMPLE = 'syntax = "proto3"; package p; message M {} service S { rpc Do(M) returns (M); }'
IMPORTING = """
syntax = "proto3"; package q; import "a.proto";
service T { rpc Do(p.M) returns (p.M); }
"""


def generated() -> Service:
    return Service.of(compiled_schema.greeter().module.DESCRIPTOR.services_by_name["Greeter"])


def test_service_of_generated_code_has_the_generated_classes() -> None:
    module = compiled_schema.greeter().module
    service = generated()
    assert (service.name, service.full_name, service.doc) == ("Greeter", "demo.Greeter", "")
    assert service.methods["SayHello"] == Method("SayHello", "unary", module.HelloRequest, module.HelloReply)
    assert {name: service.methods[name].kind for name in KINDS} == KINDS


def test_service_of_module_class_and_descriptor_are_equal() -> None:
    module, service = compiled_schema.greeter().module, generated()
    descriptor = module.DESCRIPTOR.services_by_name["Greeter"]
    assert Service.of(service) is service
    for source in (descriptor, SimpleNamespace(DESCRIPTOR=descriptor), module, module.DESCRIPTOR):
        assert Service.of(source) == service


@pytest.mark.parametrize("source", [None, "demo.Greeter", 7, FileDescriptorProto, "x" * 1000])
def test_source_without_a_service_is_refused(source: object) -> None:
    with pytest.raises(SchemaError, match="is not a service") as caught:
        Service.of(source)
    assert len(str(caught.value)) < 250


def test_file_without_a_service_is_refused() -> None:
    with pytest.raises(
        SchemaError,
        match=r"google/protobuf/descriptor\.proto must have exactly one service to be used like this; it has none",
    ):
        Service.of(FileDescriptorProto.DESCRIPTOR.file)


@pytest.mark.parametrize("name", ["SayHello", "say_hello", "sayHello", "say-hello", "SAY_HELLO"])
def test_method_is_found_by_folded_name(name: str) -> None:
    method = generated().find(name)
    assert method is not None
    assert method.name == "SayHello"


@pytest.mark.parametrize("name", ["", "SayHi", "sayhello", "a+b", "x" * 10_000, "demo.SayHello", "\ud800"])
def test_unknown_method_name_returns_none(name: str) -> None:
    assert generated().find(name) is None


def test_methods_with_one_folded_name_are_refused(tmp_path: Path) -> None:
    text = SIMPLE.replace("rpc Do", "rpc SayIt(M) returns (M); rpc say_it")
    with pytest.raises(SchemaError, match=r"some\.binpb: p\.S has SayIt and say_it, which the hub cannot distinguish"):
        load_services([compiled_schema.compiled(tmp_path, text)])


def test_method_with_a_too_long_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"p\.S has a method with an invalid name: the name is too long"):
        load_services([compiled_schema.compiled(tmp_path, SIMPLE.replace("rpc Do", f"rpc {'x' * 300}"))])


def test_methods_are_read_only() -> None:
    with pytest.raises(TypeError):
        generated().methods["X"] = generated().methods["SayHello"]  # type: ignore[index]


def test_descriptor_set_has_services_with_comments() -> None:
    services = load_services([str(compiled_schema.greeter().path)])
    assert list(services) == ["demo.Greeter"]
    service = services["demo.Greeter"]
    assert service.name == "Greeter"
    assert service.doc == "Says hello, and counts."
    docs = {method.name: method.doc for method in service.methods.values()}
    assert docs["SayHello"] == "Says hello to somebody.\n\nTwice, if asked to."
    assert (docs["Count"], docs["Sum"], docs["Chat"]) == ("Counts up to a number.", "Adds numbers up.", "")
    assert {name: service.methods[name].kind for name in KINDS} == KINDS


def test_descriptor_set_has_a_pool_of_its_own() -> None:
    request = load_services([compiled_schema.greeter().path])["demo.Greeter"].methods["SayHello"].request
    assert request is not compiled_schema.greeter().module.HelloRequest
    assert request.DESCRIPTOR.full_name == "demo.HelloRequest"


def test_descriptor_set_without_comments_has_no_documentation(tmp_path: Path) -> None:
    service = load_services([compiled_schema.compiled(tmp_path, SIMPLE)])["p.S"]
    assert (service.doc, service.methods["Do"].doc) == ("", "")


def test_descriptor_sets_may_share_an_import(tmp_path: Path) -> None:
    first = compiled_schema.compiled(tmp_path, SIMPLE, "--include_imports", "--include_source_info", name="a")
    second = compiled_schema.compiled(tmp_path, IMPORTING, name="b")
    assert set(load_services([first, second])) == {"p.S", "q.T"}


def test_different_services_of_one_name_are_refused(tmp_path: Path) -> None:
    first = compiled_schema.compiled(tmp_path, SIMPLE, name="a")
    second = compiled_schema.compiled(tmp_path, SIMPLE.replace("Do(", "Done("), name="c")
    with pytest.raises(SchemaError, match=r"a\.binpb and .*c\.binpb have different services p\.S"):
        load_services([first, second])


def test_missing_import_is_named_with_the_protoc_command(tmp_path: Path) -> None:
    compiled_schema.compiled(tmp_path, SIMPLE, name="a")
    path = compiled_schema.compiled(tmp_path, IMPORTING, "--include_source_info", name="b")
    with pytest.raises(SchemaError) as caught:
        load_services([path])
    text = str(caught.value)
    assert "b.binpb lacks a.proto, which b.proto imports" in text
    assert f"protoc --include_imports --descriptor_set_out={path}" in text


def test_order_of_files_in_a_descriptor_set_is_irrelevant(tmp_path: Path) -> None:
    files = FileDescriptorSet.FromString(compiled_schema.greeter().path.read_bytes()).file
    path = tmp_path / "turned.binpb"
    path.write_bytes(FileDescriptorSet(file=reversed(files)).SerializeToString())
    assert set(load_services([path])) == {"demo.Greeter"}


def _cyclic() -> bytes:
    files = [FileDescriptorProto(name="a", dependency=["b"]), FileDescriptorProto(name="b", dependency=["a"])]
    return FileDescriptorSet(file=files).SerializeToString()


def _broken() -> bytes:
    file = FileDescriptorProto(name="a", syntax="proto3")
    file.message_type.add(name="M").field.add(name="f", number=1, type_name=".Gone", type=11, label=1)
    return FileDescriptorSet(file=[file]).SerializeToString()


BAD_FILES = [
    (b"", "is not a descriptor set"),
    (b"\xff\xff\xff", "is not a descriptor set"),
    (SIMPLE.encode(), "is not a descriptor set; create one with protoc --include_imports --descriptor_set_out="),
    (b"\x0a\x00", "is not a descriptor set"),
    (FileDescriptorSet(file=[FileDescriptorProto(name="a")]).SerializeToString(), "describes no service"),
    (FileDescriptorSet(file=[FileDescriptorProto(name="a")] * 2).SerializeToString(), "contains a file twice"),
    (_cyclic(), "has files that import each other"),
    (_broken(), "a is not a usable schema"),
]


@pytest.mark.parametrize(("content", "text"), BAD_FILES)
def test_invalid_descriptor_set_is_refused_by_name(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.binpb"
    path.write_bytes(content)
    with pytest.raises(SchemaError) as caught:
        load_services([path])
    assert str(caught.value).startswith(str(path))
    assert text in str(caught.value)


def test_every_truncation_of_a_descriptor_set_is_loaded_or_refused(tmp_path: Path) -> None:
    whole = compiled_schema.compiled(tmp_path, SIMPLE).read_bytes()
    path = tmp_path / "cut.binpb"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SchemaError):
            load_services([path])


def test_unreadable_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"gone\.binpb cannot be read: No such file"):
        load_services([tmp_path / "gone.binpb"])
    with pytest.raises(SchemaError, match="cannot be read: Is a directory"):
        load_services([tmp_path])
