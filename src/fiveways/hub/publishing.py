"""Publications on their way to all who subscribed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.admission import Admission
from fiveways.hub.attachments import Attachments
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Fanout, Persist, Subscriber
from fiveways.hub.permissions import pattern_texts, topic_text
from fiveways.hub.refusal import Refusal, bad_arguments
from fiveways.hub.retained import RetainedValue, RetainedValues, retained_memory
from fiveways.hub.retained_delivery import RetainedDeliveries
from fiveways.hub.session import Session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import owner_from_name
from fiveways.hub.sizes import is_null
from fiveways.hub.store_status import StoreStatus
from fiveways.hub.subscriptions import Subscriptions
from fiveways.model.messages import CloseTopic, Event, Publish, Result, Subscribe, TopicClosed, Unsubscribe
from fiveways.model.store_changes import DropRetained, PutRetained, StoreChange
from fiveways.model.topics import Topic
from fiveways.wire.payload import Json, Payload, Value

FIRST_PUBLICATION: Final = 256
"""Decoders are in use that take smaller numbers for another type."""


class Publishing:
    """Numbers publications, keeps the last ones that are to be kept, and finds out who gets them."""

    def __init__(
        self,
        settings: HubSettings,
        subscriptions: Subscriptions,
        attachments: Attachments,
        sessions: Mapping[str, Session],
        gate: Admission,
        counters: Counters,
        storage: StoreStatus,
    ) -> None:
        self._store_status, self._is_durable = storage, storage.is_durable
        self._subscriptions = subscriptions
        self._attachments = attachments
        self._sessions = sessions
        self._admission = gate
        self._counters = counters
        self._traffic = counters.traffic
        self._topic_stats = counters.traffic.topics
        self._cached_subscribers = subscriptions.cached
        self._retained = RetainedValues(settings)
        self._retained_deliveries = RetainedDeliveries(self._retained, self._count_retained_deliveries)
        self._open_deliveries = self._retained_deliveries.active
        self._last_number = FIRST_PUBLICATION - 1
        self.configure(settings)

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self._retained.configure(settings)
        self._subscriptions.configure(settings)

    @property
    def publication_count(self) -> int:
        """How many publications there have been."""
        return self._last_number - FIRST_PUBLICATION + 1

    @property
    def retained_count(self) -> int:
        """How many values are kept."""
        return len(self._retained)

    def publish(self, publisher: Session, word: Publish, _now: float) -> Deliveries:
        """Give a publication to all who subscribed."""
        topic = word.topic
        if publisher.access.publish is not None:
            publisher.access.check_publish(topic)
        if word.attachments:
            self._attachments.check_room(publisher, word.attachments)
        old = self._retained.get(topic) if self._open_deliveries else None
        record = self._retain(publisher, word) if word.retain else None
        subscribers = self._cached_subscribers(topic) or self._subscriptions.match(topic)
        if word.exclude_me:
            subscribers = tuple(each for each in subscribers if each.peer != publisher.peer)
        number = self._last_number = self._last_number + 1
        op = publisher.op = f"p{number}"
        deliveries: Deliveries = []
        if word.attachments:
            deliveries = self._fan_out_with_attachments(publisher, word, subscribers, number, op)
        elif subscribers:
            deliveries = [Fanout(Event("", topic, word.body, (), number), subscribers, publisher.peer, op)]
        count = len(subscribers)
        self._counters.deliveries += count
        passed = self._topic_stats.get(topic) or self._traffic.topic_stats(topic)
        passed.publications += 1
        passed.deliveries += count
        self._traffic.protocol_stats(publisher.traits.protocol).publications += 1
        if word.id is not None:
            done = Delivery(publisher.peer, Result(word.id, Value(number)), op)
            deliveries.append(done if record is None else Persist(record, [done]))
        elif record is not None:
            deliveries.append(Persist(record, []))
        if old is not None:
            return [*self._deliver_retained_first(old, word, number), *deliveries]
        return deliveries

    def _deliver_retained_first(self, old: RetainedValue, word: Publish, number: int) -> Deliveries:
        """Return the value that a topic had to those who subscribed and have not got it yet."""
        told = self._retained_deliveries.deliver_before_event(old, self._subscriptions.match(word.topic))
        if not word.retain:
            self._retained.note_event(old, number)
        return [*told]

    def _fan_out_with_attachments(
        self, publisher: Session, word: Publish, subscribers: Sequence[Subscriber], number: int, op: str
    ) -> Deliveries:
        """Fan out in rounds, so that no peer gets the same name for two attachments, however often it subscribed."""
        rounds: list[list[Subscriber]] = []
        turns: Counter[str] = Counter()
        for each in subscribers:
            if turns[each.peer] == len(rounds):
                rounds.append([])
            rounds[turns[each.peer]].append(each)
            turns[each.peer] += 1
        deliveries: Deliveries = []
        for chosen in rounds:
            receivers = [self._sessions[each.peer] for each in chosen]
            names = self._attachments.relay(publisher, word.attachments, receivers, op, word.body)
            event = Event("", word.topic, word.body, names, number)
            deliveries.append(Fanout(event, tuple(chosen), publisher.peer, op))
        return deliveries

    def _retain(self, publisher: Session, word: Publish) -> StoreChange | None:
        """Keep a value; return what must be safe before that is told, if there is a store."""
        topic = word.topic
        if word.attachments:
            raise bad_arguments("a value with attachments cannot be retained")
        if word.id is not None:  # its answer promises that the value is on disk
            self._store_status.check_available()
        self._subscriptions.check_depth(len(topic))
        if is_null(word.body):
            self._retained.remove(topic)
            return DropRetained(_encode_topic(topic)) if self._is_durable else None
        owner = publisher.owner
        try:
            size = retained_memory(topic, word.body)
            # Encode the record before the value is retained: CBOR has values without a JSON form.
            record = None
            if self._is_durable:
                record = PutRetained(_encode_topic(topic), word.body.nq(), self._last_number + 1, owner.name)
        except Unrepresentable as exc:
            raise bad_arguments(str(exc)) from exc
        value = RetainedValue(topic, word.body, self._last_number + 1, size, owner)
        self._retained.check_room(value)
        self._retained.store(value)
        return record

    def restore(self, values: Iterable[PutRetained]) -> None:
        """Have again the values that an earlier hub kept."""
        for kept in values:
            topic = tuple(msgspec.json.decode(kept.topic, type=list[str]))
            body = Json(kept.payload)
            size, owner = retained_memory(topic, body), owner_from_name(kept.owner)
            # No bound: these values were accepted, and JSON may be larger than the CBOR that was counted then.
            self._retained.store(RetainedValue(topic, body, kept.publication, size, owner))
            self._last_number = max(self._last_number, kept.publication)

    def retained_values(self) -> Iterator[RetainedValue]:
        """Yield all retained values."""
        yield from self._retained

    def forget_retained(self, topic: Topic) -> list[StoreChange]:
        """Forget the value of a topic; return what the store must forget."""
        self._retained.remove(topic)
        self._retained_deliveries.forget(topic)
        return [DropRetained(_encode_topic(topic))] if self._is_durable else []

    def retained_value(self, topic: Topic) -> tuple[Payload, int] | None:
        """Return the value that is kept for a topic, and the number of that publication."""
        kept = self._retained.get(topic)
        return None if kept is None else (kept.body, kept.publication)

    @property
    def last_number(self) -> int:
        """The number of the last publication."""
        return self._last_number

    def subscribe(self, session: Session, word: Subscribe, _now: float) -> Deliveries:
        """Take a subscription, and give it the values that were kept."""
        if not session.access.may_subscribe(word.pattern):
            raise Refusal(Reason.DENIED, f"you may not subscribe to {pattern_texts(word.pattern)[-1]}")
        if word.when_full == "block":
            raise Refusal(Reason.DENIED, "only who runs the hub may let a slow reader hold up publishers")
        name, envelope = word.subscription, word.envelope
        subscriber = Subscriber(session.peer, name, envelope, word.when_full or "skip")
        self._subscriptions.add(word.pattern, subscriber, session.owner)
        deliveries: Deliveries = [Delivery(session.peer, Result(word.id, Value({"id": name})))]
        deliveries += self._retained_deliveries.begin(subscriber, word.pattern, session.owner, self._last_number)
        return deliveries

    def _count_retained_deliveries(self, told: list[Delivery]) -> None:
        """Count retained values that are delivered."""
        for each in told:
            event, session = each.message, self._sessions.get(each.peer)
            if isinstance(event, Event) and session is not None:
                self._traffic.topic_stats(event.topic).deliveries += 1
                self._traffic.protocol_stats(session.traits.protocol).deliveries += 1
        self._counters.deliveries += len(told)

    def unsubscribe(self, session: Session, word: Unsubscribe, _now: float) -> Deliveries:
        """End a subscription."""
        found = self._remove_subscription(session.peer, word.subscription)
        if word.id is None:
            return []
        if not found:
            raise bad_arguments(f"there is no subscription {word.subscription}")
        return [Delivery(session.peer, Result(word.id))]

    def end_subscription(self, peer: str, subscription: str) -> Deliveries:
        """End the subscription of somebody who reads too slowly."""
        return [Delivery(peer, TopicClosed(subscription))] if self._remove_subscription(peer, subscription) else []

    def _remove_subscription(self, peer: str, subscription: str) -> bool:
        self._retained_deliveries.end(peer, subscription)
        return self._subscriptions.remove(peer, subscription)

    def revoke(self, session: Session) -> Deliveries:
        """End the subscriptions that a peer may not have any more."""
        deliveries: Deliveries = []
        for each in self._subscriptions.of_peer(session.peer):
            if not session.access.may_subscribe(each.pattern):
                deliveries += self.end_subscription(session.peer, each.subscriber.subscription)
        return deliveries

    def close_topic(self, session: Session, word: CloseTopic, _now: float) -> Deliveries:
        """End a topic for all who subscribed to it by its name, and forget its value."""
        session.access.check_publish(word.topic)
        self._check_close(session, word.topic)
        kept: Deliveries = []
        if self._retained.get(word.topic) is not None:
            kept = [Persist(record, []) for record in self.forget_retained(word.topic)]
        deliveries: Deliveries = [
            *kept,
            *(
                Delivery(each.peer, TopicClosed(each.subscription))
                for each in self._subscriptions.close_topic(word.topic)
            ),
        ]
        if word.id is not None:
            deliveries.append(Delivery(session.peer, Result(word.id)))
        return deliveries

    def _check_close(self, session: Session, topic: Topic) -> None:
        """Refuse to end subscriptions of others on a topic on which others may publish too."""
        allowed, text = session.access.close, topic_text(topic)
        if session.credentials.is_trusted or allowed is None or allowed.allows(text):
            return
        subscribers = (self._sessions[each.peer].identity for each in self._subscriptions.exact_subscribers(topic))
        if any(each != session.identity for each in subscribers) and self._admission.may_others_publish(session, topic):
            raise Refusal(Reason.DENIED, f"you may not close {text}: others subscribe to it, and may publish on it")

    def leave(self, session: Session) -> None:
        """End all subscriptions of a peer."""
        self._retained_deliveries.leave(session.peer)
        self._subscriptions.leave(session.peer)


def _encode_topic(topic: Topic) -> str:
    """Return a topic as the store knows it."""
    return msgspec.json.encode(topic).decode()
