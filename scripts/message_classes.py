"""Write a Python module with the message classes of a .proto file: protoc's descriptor set in, the module out.

protoc's own Python code refuses a protobuf runtime older than the protoc that wrote it, so a package that contains such
code needs the newest protobuf. Descriptor pools and `GetMessageClass` are public interfaces without this check.
"""

import sys

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_HEAD = '''"""The messages of {name}, written by `make proto`."""

{imports}
from google.protobuf.descriptor_pool import Default
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass
'''


def module(file: FileDescriptorProto) -> str:
    """Return the text of the module."""
    for message in file.message_type:
        for field in message.field:
            field.ClearField("json_name")  # the default; protoc's own Python code leaves it out, too
    # The pool must know the files that this one imports.
    places = [name.removesuffix(".proto").rpartition("/") for name in file.dependency]
    imports = [f"from {folder.replace('/', '.')} import {stem}_pb2 as _{stem}_pb2" for folder, _, stem in places]
    lines = [_HEAD.format(name=file.name, imports="\n".join(imports))]
    lines.append(f"DESCRIPTOR = Default().AddSerializedFile(\n    {file.SerializeToString()!r}\n)\n")
    for enum in file.enum_type:
        lines.append(f'{enum.name} = EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["{enum.name}"])')
        lines += [f"{value.name} = {value.number}" for value in enum.value]
    for message in file.message_type:
        lines.append(f'{message.name} = GetMessageClass(DESCRIPTOR.message_types_by_name["{message.name}"])')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (descriptor,) = FileDescriptorSet.FromString(sys.stdin.buffer.read()).file
    print(module(descriptor), end="")
