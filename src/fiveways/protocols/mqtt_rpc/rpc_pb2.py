"""The messages of fiveways/protocols/mqtt_rpc/rpc.proto, written by `make proto`."""

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.descriptor_pool import Default
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

DESCRIPTOR = Default().AddSerializedFile(
    b'\n%fiveways/protocols/mqtt_rpc/rpc.proto\x12\x1bfiveways.protocols.mqtt_rpc\x1a\x19google/protobuf/any.proto"\xdd\x01\n\x07Request\x12\x16\n\x0ecorrelation_id\x18\x01 \x01(\x04\x12"\n\x04body\x18\x02 \x01(\x0b2\x14.google.protobuf.Any\x12\x10\n\x03eos\x18\x03 \x01(\x08H\x00\x88\x01\x01\x12\x14\n\x07timeout\x18\x05 \x01(\rH\x01\x88\x01\x01\x12C\n\x0ctimeout_unit\x18\x06 \x01(\x0e2(.fiveways.protocols.mqtt_rpc.TimeoutUnitH\x02\x88\x01\x01B\x06\n\x04_eosB\n\n\x08_timeoutB\x0f\n\r_timeout_unitJ\x04\x08\x04\x10\x05"\x9c\x01\n\x08Response\x12\x16\n\x0ecorrelation_id\x18\x01 \x01(\x04\x12"\n\x04body\x18\x02 \x01(\x0b2\x14.google.protobuf.Any\x12:\n\nerror_data\x18\x03 \x01(\x0b2&.fiveways.protocols.mqtt_rpc.ErrorData\x12\x10\n\x03eos\x18\x04 \x01(\x08H\x00\x88\x01\x01B\x06\n\x04_eos"Q\n\tErrorData\x12\x0c\n\x04code\x18\x01 \x01(\r\x12\x0b\n\x03tag\x18\x02 \x01(\t\x12\x14\n\x0cuser_message\x18\x03 \x01(\t\x12\x13\n\x0bretry_after\x18\x04 \x01(\r*Q\n\x0bTimeoutUnit\x12\x0f\n\x0bUNSPECIFIED\x10\x00\x12\x08\n\x04HOUR\x10\x01\x12\n\n\x06MINUTE\x10\x02\x12\n\n\x06SECOND\x10\x03\x12\x0f\n\x0bMILLISECOND\x10\x04b\x06proto3'
)

TimeoutUnit = EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["TimeoutUnit"])
UNSPECIFIED = 0
HOUR = 1
MINUTE = 2
SECOND = 3
MILLISECOND = 4
Request = GetMessageClass(DESCRIPTOR.message_types_by_name["Request"])
Response = GetMessageClass(DESCRIPTOR.message_types_by_name["Response"])
ErrorData = GetMessageClass(DESCRIPTOR.message_types_by_name["ErrorData"])
