"""Protobuf schemas: services from descriptor sets or generated code, and their messages as JSON.

`load` and `Service.of` give services; `SchemaCodec` writes and reads bodies by them; `kinds` says which methods stream.
"""

from fiveways.schemas.codec import Codec, SchemaCodec, kinds
from fiveways.schemas.services import Method, SchemaError, Service
from fiveways.schemas.sets import load

__all__ = ["Codec", "Method", "SchemaCodec", "SchemaError", "Service", "kinds", "load"]
