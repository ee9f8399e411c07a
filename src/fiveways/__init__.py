"""A messaging hub and its client: a broker for five wire protocols (UMQ in two dialects, LRPM, NQ, RPC over MQTT).

Public names are imported on first access: a program loads only the modules that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fiveways.app import App, AttachmentError, CallingPeer, Context, Event, Fail, Job, Reply, Update
    from fiveways.client.connect import connect
    from fiveways.client.mqtt.peer import MqttPeer, connect_mqtt
    from fiveways.client.mqtt.retry import Retry
    from fiveways.client.peer import Peer
    from fiveways.client.pending_call import Note, PendingCall
    from fiveways.client.sync import connect_sync
    from fiveways.errors import (
        BadValue,
        CallError,
        CallFailed,
        CallLost,
        CallTimeout,
        Cancelled,
        ConnectionLost,
        FivewaysError,
        NotExecuted,
        Reason,
        Refused,
    )

_MODULES = {
    "App": "app",
    "AttachmentError": "app",
    "BadValue": "errors",
    "CallError": "errors",
    "CallFailed": "errors",
    "CallLost": "errors",
    "CallTimeout": "errors",
    "CallingPeer": "app",
    "Cancelled": "errors",
    "ConnectionLost": "errors",
    "Context": "app",
    "Event": "app",
    "Fail": "app",
    "FivewaysError": "errors",
    "Job": "app",
    "MqttPeer": "client.mqtt.peer",
    "NotExecuted": "errors",
    "Note": "client.pending_call",
    "Peer": "client.peer",
    "PendingCall": "client.pending_call",
    "Reason": "errors",
    "Refused": "errors",
    "Reply": "app",
    "Retry": "client.mqtt.retry",
    "Update": "app",
    "connect": "client.connect",
    "connect_mqtt": "client.mqtt.peer",
    "connect_sync": "client.sync",
}
__all__ = [
    "App",
    "AttachmentError",
    "BadValue",
    "CallError",
    "CallFailed",
    "CallLost",
    "CallTimeout",
    "CallingPeer",
    "Cancelled",
    "ConnectionLost",
    "Context",
    "Event",
    "Fail",
    "FivewaysError",
    "Job",
    "MqttPeer",
    "NotExecuted",
    "Note",
    "Peer",
    "PendingCall",
    "Reason",
    "Refused",
    "Reply",
    "Retry",
    "Update",
    "connect",
    "connect_mqtt",
    "connect_sync",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fiveways' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fiveways.{module}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
