"""A messaging hub and its client: a broker for five wire protocols (UMQ in two dialects, LRPM, NQ, RPC over MQTT).

Public names are imported on first access: a program loads only the modules that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

    from fiveways.app import App, AttachmentError, CallingPeer, Context, Event, Fail, Job, Reply, Update
    from fiveways.app.values import Unsendable
    from fiveways.client.connect import connect
    from fiveways.client.handshake import BadCredentials
    from fiveways.client.mqtt.peer import MqttPeer, connect_mqtt
    from fiveways.client.mqtt.retry import Retry
    from fiveways.client.peer import Peer
    from fiveways.client.pending_call import Note, PendingCall
    from fiveways.client.sync import connect_sync
    from fiveways.client.urls import BadUrl
    from fiveways.errors import (
        BadValue,
        CallError,
        CallFailed,
        CallLost,
        CallTimeout,
        Cancelled,
        ConnectionLost,
        FivewaysError,
        LocalProtocolError,
        NotExecuted,
        Reason,
        Refused,
    )
    from fiveways.model.names import BadName
    from fiveways.model.topics import BadTopic
    from fiveways.runtime.embedded_hub import EmbeddedHub, serve
    from fiveways.schemas.services import SchemaError

_MODULES = {
    "App": "app",
    "AttachmentError": "app",
    "BadCredentials": "client.handshake",
    "BadName": "model.names",
    "BadTopic": "model.topics",
    "BadUrl": "client.urls",
    "BadValue": "errors",
    "CallError": "errors",
    "CallFailed": "errors",
    "CallLost": "errors",
    "CallTimeout": "errors",
    "CallingPeer": "app",
    "Cancelled": "errors",
    "ConnectionLost": "errors",
    "Context": "app",
    "EmbeddedHub": "runtime.embedded_hub",
    "Event": "app",
    "Fail": "app",
    "FivewaysError": "errors",
    "Job": "app",
    "LocalProtocolError": "errors",
    "MqttPeer": "client.mqtt.peer",
    "NotExecuted": "errors",
    "Note": "client.pending_call",
    "Peer": "client.peer",
    "PendingCall": "client.pending_call",
    "Reason": "errors",
    "Refused": "errors",
    "Reply": "app",
    "Retry": "client.mqtt.retry",
    "SchemaError": "schemas.services",
    "Unsendable": "app.values",
    "Update": "app",
    "connect": "client.connect",
    "connect_mqtt": "client.mqtt.peer",
    "connect_sync": "client.sync",
    "serve": "runtime.embedded_hub",
}
__all__ = [
    "App",
    "AttachmentError",
    "BadCredentials",
    "BadName",
    "BadTopic",
    "BadUrl",
    "BadValue",
    "CallError",
    "CallFailed",
    "CallLost",
    "CallTimeout",
    "CallingPeer",
    "Cancelled",
    "ConnectionLost",
    "Context",
    "EmbeddedHub",
    "Event",
    "Fail",
    "FivewaysError",
    "Job",
    "LocalProtocolError",
    "MqttPeer",
    "NotExecuted",
    "Note",
    "Peer",
    "PendingCall",
    "Reason",
    "Refused",
    "Reply",
    "Retry",
    "SchemaError",
    "Unsendable",
    "Update",
    "__version__",
    "connect",
    "connect_mqtt",
    "connect_sync",
    "serve",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        # Imported here, because it takes longer than the rest of the package.
        from importlib.metadata import version  # noqa: PLC0415

        return version("fiveways")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fiveways' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fiveways.{module}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
