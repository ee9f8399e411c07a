"""Protobuf schemas: services from descriptor sets or generated code, and JSON conversion of their messages.

`load_services` and `Service.of` return services, `SchemaCodec` encodes and decodes bodies, and `make_kind_lookup` tells
which methods stream.
"""

from fiveways.schemas.codec import Codec, SchemaCodec, make_kind_lookup
from fiveways.schemas.descriptor_sets import load_services
from fiveways.schemas.services import Method, SchemaError, Service

__all__ = ["Codec", "Method", "SchemaCodec", "SchemaError", "Service", "load_services", "make_kind_lookup"]
