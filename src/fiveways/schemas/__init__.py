"""Protobuf schemas: services from descriptor sets or generated code, and their messages as JSON.

`load` and `Service.of` give services; `SchemaCodec` writes and reads bodies by them; `kinds` says which methods stream.
"""

from fiveways.schemas.codec import Codec, SchemaCodec, make_kind_lookup
from fiveways.schemas.descriptor_sets import load_services
from fiveways.schemas.services import Method, SchemaError, Service

__all__ = ["Codec", "Method", "SchemaCodec", "SchemaError", "Service", "load_services", "make_kind_lookup"]
