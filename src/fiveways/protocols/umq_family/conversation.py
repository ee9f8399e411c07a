"""The upper half of a UMQ conversation: requests and their answers, topics, variables.

A dialect subclasses it, says how a call is written and which codes its errors have, and adds its own messages.
"""

from abc import abstractmethod
from collections.abc import Mapping
from itertools import count
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.model.names import BadName, fold, spell
from fiveways.protocols import builtins
from fiveways.protocols.base import Setup
from fiveways.protocols.umq_family import messages as umq
from fiveways.protocols.umq_family.frames import write_text
from fiveways.protocols.umq_family.link import NOTHING, Names, Receiver, Sender, UmqLink, Words
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.protocols.umq_family.requests import Asked, Asking
from fiveways.protocols.umq_family.states import State
from fiveways.protocols.umq_family.topics import Followed, Following, Published
from fiveways.protocols.umq_family.variables import Variables
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Text

OPEN: Final = State.OPEN
"""To reach a member of an Enum through its class takes longer than to write a frame."""


class UmqConversation(UmqLink):
    """One UMQ peer. Fulfils `base.Conversation`."""

    STYLES: ClassVar[builtins.Styles]
    WRITE_CALL: ClassVar["staticmethod[[str, str, Payload], Packet]"]
    """A call without attachments, from its id, the method's name and its body."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.variables = Variables(setup.limits)
        self._last_id = 0
        self._last_topic = 0
        self._repeats = count(2)
        self._asked: dict[str, str | Asked] = {}
        self._asking: dict[str, str | Asking] = {}
        self._asking_by_hub_id: dict[str, str] = {}
        self._published = Published(setup.limits.max_subscriptions)
        self._followed = Followed()

    # What a dialect must say.

    @abstractmethod
    def _wire_id(self, number: int) -> str:
        """How the dialect writes the `number`-th identifier of ours."""

    @abstractmethod
    def _call(self, wire_id: str, name: str, body: Payload, attachments: int) -> UmqMessage: ...

    @abstractmethod
    def _callback(self, wire_id: str, token: str, body: Payload, attachments: int) -> umq.Callback: ...

    @abstractmethod
    def _failure(self, wire_id: str, failure: hub.Failure) -> umq.Error | umq.NotRun: ...

    @abstractmethod
    def _read_failure(self, asking: Asking, answer: umq.Error | umq.NotRun) -> hub.Failure: ...

    @abstractmethod
    def _discover(self, wire_id: str, word: hub.Discover) -> UmqMessage: ...

    @abstractmethod
    def _read_description(self, hub_id: str, text: str) -> hub.Word: ...

    def _token(self, written: str) -> str:
        """The callback token that the peer wrote so."""
        return written

    def _answer(self, _asked: Asked, body: Payload) -> str:
        """The text of an answer to what is more than a plain call."""
        return body.text()

    def _topic_ended(self, topic: str) -> None:
        """The peer ended a live topic of its own."""

    # Requests of the peer, and our answers.

    def _requested(self, wire_id: str, name: str, body: Payload, names: Names) -> Words:
        """The peer calls the method that it writes `name`."""
        try:
            method = fold(name, self.STYLES.names)
        except BadName as exc:
            return self._refuse(wire_id, Reason.NO_METHOD, str(exc))
        if len(self._asked) >= self._limits.max_pending:
            return self._refuse(wire_id, Reason.BUSY, "too many calls are open")
        hub_id = wire_id if wire_id not in self._asked else self._unique(wire_id)
        if method.startswith("hub."):
            try:
                word = builtins.read(hub_id, method, body, self.STYLES, names)
            except builtins.BadArguments as exc:
                return self._refuse(wire_id, Reason.BAD_ARGUMENTS, str(exc))
            if type(word) is hub.Publish:  # when it is granted, nothing changes here
                self._asked[hub_id] = wire_id
                return (word,)
            if word is not None:
                return self._requested_word(wire_id, hub_id, word)
        self._asked[hub_id] = wire_id
        return (hub.Call(hub_id, method, body, name, names),)

    def _requested_word(self, wire_id: str, hub_id: str, word: hub.Word) -> Words:
        refused = None
        if isinstance(word, hub.Subscribe):
            refused = self._published.claim(word.subscription)
        elif isinstance(word, hub.SetVariable):
            refused = self.variables.refusal(word.name)
        elif isinstance(word, hub.Unsubscribe):
            if self._published.end(word.subscription):
                self._topic_ended(word.subscription)
            else:
                refused = Reason.BAD_ARGUMENTS, f"there is no topic {word.subscription}"
        if refused is not None:
            return self._refuse(wire_id, *refused)
        if isinstance(word, hub.SetVariable):
            self.variables.ask(word.name)
        self._asked[hub_id] = Asked(wire_id, word)
        return (word,)

    def _granted(self, word: hub.Word | None) -> None:
        if isinstance(word, hub.Subscribe):
            self._published.grant(word.subscription)
        elif isinstance(word, hub.SetVariable):
            self.variables.grant(word.name, word.body.text())
        elif isinstance(word, hub.UnsetVariable):
            self.variables.remote.pop(word.name, None)

    def _denied(self, word: hub.Word | None) -> None:
        if isinstance(word, hub.Subscribe):
            self._published.release(word.subscription)
        elif isinstance(word, hub.SetVariable):
            self.variables.deny(word.name)

    def _on_callback(self, message: umq.Callback, names: Names, _now: float) -> Words:
        if len(self._asked) >= self._limits.max_pending:
            return self._refuse(message.id, Reason.BUSY, "too many calls are open")
        hub_id = self._unique(message.id)
        self._asked[hub_id] = message.id
        token = self._token(message.callback)
        return (hub.Call(hub_id, token, Text(message.payload), attachments=names, callback=True),)

    def _unique(self, wire_id: str) -> str:
        """The peer should not use an identifier twice at once; where it does, both requests are served."""
        hub_id = wire_id
        while hub_id in self._asked:
            hub_id = f"{wire_id}#{next(self._repeats)}"
        return hub_id

    def _refuse(self, wire_id: str, reason: Reason, text: str) -> Words:
        self._say(self._failure(wire_id, hub.Failure(wire_id, reason, text)))
        return NOTHING

    def _open_request(self, hub_id: str) -> str | Asked:
        asked = self._asked.get(hub_id)
        if asked is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return asked

    def _send_result(self, word: hub.Result) -> None:
        asked, body = self._asked.get(word.id), word.body
        if type(asked) is str and body is not None and not word.stream and not word.attachments:
            # Most answers are such, and need not become a message first.
            self._put(write_text(f"R{asked}{self._separator}{body.text()}"))
            del self._asked[word.id]
            return
        asked = self._open_request(word.id)
        if word.stream or body is None:
            raise LocalProtocolError("UMQ takes a streamed answer as one array")
        wire_id, text = (asked, body.text()) if isinstance(asked, str) else (asked.wire_id, self._answer(asked, body))
        self._say(umq.Result(wire_id, text, len(word.attachments)), word.attachments)
        del self._asked[word.id]
        if isinstance(asked, Asked):
            self._granted(asked.word)

    def _send_failure(self, word: hub.Failure) -> None:
        asked = self._open_request(word.id)
        self._say(self._failure(asked if isinstance(asked, str) else asked.wire_id, word))
        del self._asked[word.id]
        if isinstance(asked, Asked):
            self._denied(asked.word)

    def _send_description(self, word: hub.Description) -> None:
        asked = self._open_request(word.id)
        wire_id = asked if isinstance(asked, str) else asked.wire_id
        self._say(umq.Result(wire_id, builtins.described(word).text()))
        del self._asked[word.id]

    # Our requests, and the peer's answers.

    def _send_call(self, word: hub.Call) -> None:
        if word.more:
            raise LocalProtocolError("UMQ takes a streamed request as one array")
        hub_id = word.id
        wire_id = self._next_id(hub_id)
        attachments = word.attachments
        if word.callback:
            self._say(self._callback(wire_id, word.method, word.body, len(attachments)), attachments)
        else:
            name = word.spelling or spell(word.method, self.STYLES.names)
            if attachments or self._state is not OPEN:
                self._say(self._call(wire_id, name, word.body, len(attachments)), attachments)
            else:
                self._put(self.WRITE_CALL(wire_id, name, word.body))
        self._last_id += 1
        self._asking[wire_id] = hub_id
        self._asking_by_hub_id[hub_id] = wire_id

    def _send_builtin(self, word: builtins.Builtin) -> None:
        """Words that UMQ has no message for are calls of the hub's own methods."""
        topic = None
        if isinstance(word, hub.Subscribe):
            self._followed.check_free(word.subscription)
            topic = self._wire_id(self._last_topic + 1)
        wire_id = self._next_id(word.id)
        method, body = builtins.write(word, self.STYLES, topic)
        attachments: Names = getattr(word, "attachments", ())
        self._say(self._call(wire_id, spell(method, self.STYLES.names), body, len(attachments)), attachments)
        self._last_id += 1
        if word.id is not None:
            self._expect_answer(wire_id, Asking(word.id, type(word), topic))
        if topic is not None and isinstance(word, hub.Subscribe):
            self._last_topic += 1
            self._followed.add(topic, Following(word.subscription, word.pattern.literal, word.envelope))

    def _send_discover(self, word: hub.Discover) -> None:
        wire_id = self._next_id(word.id)
        self._say(self._discover(wire_id, word))
        self._last_id += 1
        self._expect_answer(wire_id, Asking(word.id, hub.Discover))

    def _next_id(self, hub_id: str | None) -> str:
        if hub_id in self._asking_by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._asking) >= self._limits.max_pending:
            raise LocalProtocolError("too many requests to this peer are open")
        return self._wire_id(self._last_id + 1)

    def _expect_answer(self, wire_id: str, asking: Asking) -> None:
        self._asking[wire_id] = asking
        self._asking_by_hub_id[asking.hub_id] = wire_id

    def _send_cancel(self, word: hub.Cancel) -> None:
        """UMQ cannot say it: the late answer will find nobody."""
        asking = self._answered(self._asking_by_hub_id.get(word.id, ""))
        if asking is not None and asking.topic is not None:
            self._followed.remove(asking.topic)

    def _answered(self, wire_id: str) -> Asking | None:
        """The request of ours that this answers; None if there is none (any more)."""
        asking = self._asking.pop(wire_id, None)
        if isinstance(asking, str):
            asking = Asking(asking, hub.Call)
        if asking is not None:
            del self._asking_by_hub_id[asking.hub_id]
        return asking

    def _on_result(self, message: umq.Result, names: Names, _now: float) -> Words:
        asking = self._asking.get(message.id)
        if isinstance(asking, str):
            del self._asking[message.id], self._asking_by_hub_id[asking]
            return (hub.Result(asking, Text(message.payload), names),)
        asking = self._answered(message.id)
        if asking is None:
            return NOTHING
        if asking.word is hub.Discover:
            return (self._read_description(asking.hub_id, message.payload),)
        return (hub.Result(asking.hub_id, Text(message.payload), names),)

    def _on_failure(self, message: umq.Error | umq.NotRun, _names: Names, _now: float) -> Words:
        asking = self._answered(message.id)
        if asking is None:
            return NOTHING
        if asking.topic is not None:
            self._followed.remove(asking.topic)
        return (self._read_failure(asking, message),)

    # Topics.

    def _on_update(self, message: umq.TopicUpdate, names: Names, _now: float) -> Words:
        following = self._followed.get(message.id)
        if following is None:
            self._say(umq.Unsubscribe(message.id))
            return NOTHING
        event = hub.Event(following.subscription, following.topic, Text(message.payload), names)
        return (builtins.unwrapped(event, self.STYLES) if following.envelope else event,)

    def alike(self, word: hub.Event) -> Packet | None:
        """Return the update, which carries nothing of its receiver but the topic's id."""
        if word.attachments or self.closed or word.subscription not in self._published.live:
            return None
        text = builtins.body_of(word, self.STYLES).text()
        return self._fitting(write_text(f"T{word.subscription}{self._separator}{text}"))

    def _on_topic_close(self, message: umq.TopicClose, _names: Names, _now: float) -> Words:
        subscription = self._followed.remove(message.id)
        return NOTHING if subscription is None else (hub.TopicClosed(subscription),)

    def _on_unsubscribe(self, message: umq.Unsubscribe, _names: Names, _now: float) -> Words:
        if not self._published.end(message.id):
            return NOTHING
        self._topic_ended(message.id)
        return (hub.Unsubscribe(None, message.id),)

    def _send_event(self, word: hub.Event) -> None:
        if (packet := self.alike(word)) is not None:
            self.unsent.append(packet)
            return
        self._published.check_live(word.subscription)
        text, attachments = builtins.body_of(word, self.STYLES).text(), word.attachments
        self._say(umq.TopicUpdate(word.subscription, text, len(attachments)), attachments)

    def _send_topic_closed(self, word: hub.TopicClosed) -> None:
        self._published.check_live(word.subscription)
        self._say(umq.TopicClose(word.subscription))
        self._published.end(word.subscription)

    def _send_unsubscribe(self, word: hub.Unsubscribe) -> None:
        topic = self._followed.topic(word.subscription)
        if word.id is None:
            self._say(umq.Unsubscribe(topic))
        else:
            self._send_builtin(msgspec.structs.replace(word, subscription=topic))
        self._followed.remove(topic)

    # Variables.

    def _on_set(self, message: umq.SetVariable, names: Names, _now: float) -> Words:
        refused = self.variables.refusal(message.name)
        if refused is not None:
            raise RemoteProtocolError(Fault.TOO_LARGE, refused[1], self.RULE_VARIABLES)
        self.variables.remote[message.name] = message.payload
        return (hub.SetVariable(None, message.name, Text(message.payload), names),)

    def _on_unset(self, message: umq.UnsetVariable, _names: Names, _now: float) -> Words:
        known = self.variables.remote.pop(message.name, None) is not None
        return (hub.UnsetVariable(None, message.name),) if known else NOTHING

    def _send_set(self, word: hub.SetVariable) -> None:
        text = word.body.text()
        if word.id is None:
            self._say(umq.SetVariable(word.name, text, len(word.attachments)), word.attachments)
        else:
            self._send_builtin(word)
        self.variables.local[word.name] = text

    def _send_unset(self, word: hub.UnsetVariable) -> None:
        if word.id is None:
            self._say(umq.UnsetVariable(word.name))
        else:
            self._send_builtin(word)
        self.variables.local.pop(word.name, None)

    def _drop(self, _word: hub.Word) -> None:
        """UMQ has no message for it, and nobody misses it."""

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **UmqLink.RECEIVERS,
        umq.Callback: _on_callback,
        umq.Result: _on_result,
        umq.Error: _on_failure,
        umq.NotRun: _on_failure,
        umq.TopicUpdate: _on_update,
        umq.TopicClose: _on_topic_close,
        umq.Unsubscribe: _on_unsubscribe,
        umq.SetVariable: _on_set,
        umq.UnsetVariable: _on_unset,
    }

    SENDERS: ClassVar[Mapping[type[hub.Word], Sender]] = {
        **UmqLink.SENDERS,
        hub.Call: _send_call,
        hub.Cancel: _send_cancel,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Discover: _send_discover,
        hub.Description: _send_description,
        hub.Publish: _send_builtin,
        hub.CloseTopic: _send_builtin,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Subscribe: _send_builtin,
        hub.Unsubscribe: _send_unsubscribe,
        hub.Event: _send_event,
        hub.TopicClosed: _send_topic_closed,
        hub.SetVariable: _send_set,
        hub.UnsetVariable: _send_unset,
        hub.Accepted: _drop,
        hub.Progress: _drop,
        hub.Acknowledged: _drop,
    }
