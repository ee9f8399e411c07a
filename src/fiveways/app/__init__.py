"""Applications: methods, event handlers, update handlers and workers of work queues."""

from fiveways.app.app import App
from fiveways.app.attachments import AttachmentError
from fiveways.app.calling_peer import CallingPeer
from fiveways.app.context import Context
from fiveways.app.events import Event
from fiveways.app.jobs import Job
from fiveways.app.responses import Fail, Reply
from fiveways.app.updates import Update

__all__ = ["App", "AttachmentError", "CallingPeer", "Context", "Event", "Fail", "Job", "Reply", "Update"]
