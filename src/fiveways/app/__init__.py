"""Applications: functions that are called, get events or handle jobs."""

from fiveways.app.answers import Fail, Reply
from fiveways.app.app import App
from fiveways.app.attached import AttachmentError
from fiveways.app.caller import CallingPeer
from fiveways.app.context import Context
from fiveways.app.events import Event
from fiveways.app.jobs import Job
from fiveways.app.updates import Update

__all__ = ["App", "AttachmentError", "CallingPeer", "Context", "Event", "Fail", "Job", "Reply", "Update"]
