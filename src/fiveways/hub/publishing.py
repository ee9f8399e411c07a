"""Publications: fan-out to subscribers, retained values, and subscriptions."""

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
"""Existing decoders take smaller numbers for another type."""


class Publishing:
    """Numbers publications, retains values, and determines the subscribers of each publication."""

    def __init__(
        self,
        settings: HubSettings,
        subscriptions: Subscriptions,
        attachments: Attachments,
        sessions: Mapping[str, Session],
        admission: Admission,
        counters: Counters,
        store_status: StoreStatus,
    ) -> None:
        self._store_status, self._is_durable = store_status, store_status.is_durable
        self._subscriptions = subscriptions
        self._attachments = attachments
        self._sessions = sessions
        self._admission = admission
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
        """Apply new limits."""
        self._retained.configure(settings)
        self._subscriptions.configure(settings)

    @property
    def publication_count(self) -> int:
        """Number of publications since the first one."""
        return self._last_number - FIRST_PUBLICATION + 1

    @property
    def retained_count(self) -> int:
        """Number of retained values."""
        return len(self._retained)

    def publish(self, publisher: Session, message: Publish, _now: float) -> Deliveries:
        """Deliver a publication to all subscribers."""
        topic = message.topic
        if publisher.access.publish is not None:
            publisher.access.check_publish(topic)
        if message.attachments:
            self._attachments.check_room(publisher, message.attachments)
        old_value = self._retained.get(topic) if self._open_deliveries else None
        record = self._retain(publisher, message) if message.retain else None
        subscribers = self._cached_subscribers(topic) or self._subscriptions.match(topic)
        if message.exclude_me:
            subscribers = tuple(subscriber for subscriber in subscribers if subscriber.peer != publisher.peer)
        number = self._last_number = self._last_number + 1
        op = publisher.op = f"p{number}"
        deliveries: Deliveries = []
        if message.attachments:
            deliveries = self._fan_out_with_attachments(publisher, message, subscribers, number, op)
        elif subscribers:
            deliveries = [Fanout(Event("", topic, message.body, (), number), subscribers, publisher.peer, op)]
        count = len(subscribers)
        self._counters.deliveries += count
        topic_stats = self._topic_stats.get(topic) or self._traffic.topic_stats(topic)
        topic_stats.publications += 1
        topic_stats.deliveries += count
        self._traffic.protocol_stats(publisher.traits.protocol).publications += 1
        if message.id is not None:
            response = Delivery(publisher.peer, Result(message.id, Value(number)), op)
            deliveries.append(response if record is None else Persist(record, [response]))
        elif record is not None:
            deliveries.append(Persist(record, []))
        if old_value is not None:
            return [*self._deliver_retained_first(old_value, message, number), *deliveries]
        return deliveries

    def _deliver_retained_first(self, value: RetainedValue, message: Publish, number: int) -> Deliveries:
        """Return the previous retained value for new subscribers that have not received it yet."""
        retained = self._retained_deliveries.deliver_before_event(value, self._subscriptions.match(message.topic))
        if not message.retain:
            self._retained.note_event(value, number)
        return [*retained]

    def _fan_out_with_attachments(
        self, publisher: Session, message: Publish, subscribers: Sequence[Subscriber], number: int, op: str
    ) -> Deliveries:
        """Fan out in rounds, so that a peer with several subscriptions gets each attachment under a name for each."""
        rounds: list[list[Subscriber]] = []
        rounds_of_peer: Counter[str] = Counter()
        for subscriber in subscribers:
            if rounds_of_peer[subscriber.peer] == len(rounds):
                rounds.append([])
            rounds[rounds_of_peer[subscriber.peer]].append(subscriber)
            rounds_of_peer[subscriber.peer] += 1
        deliveries: Deliveries = []
        for round_subscribers in rounds:
            receivers = [self._sessions[subscriber.peer] for subscriber in round_subscribers]
            names = self._attachments.relay(publisher, message.attachments, receivers, op, message.body)
            event = Event("", message.topic, message.body, names, number)
            deliveries.append(Fanout(event, tuple(round_subscribers), publisher.peer, op))
        return deliveries

    def _retain(self, publisher: Session, message: Publish) -> StoreChange | None:
        """Retain a value; return its record for the store, if there is one."""
        topic = message.topic
        if message.attachments:
            raise bad_arguments("a value with attachments cannot be retained")
        if message.id is not None:  # its response promises that the value is on disk
            self._store_status.check_available()
        self._subscriptions.check_depth(len(topic))
        if is_null(message.body):
            self._retained.remove(topic)
            return DropRetained(_encode_topic(topic)) if self._is_durable else None
        owner = publisher.owner
        try:
            size = retained_memory(topic, message.body)
            # Encode the record before the value is retained: CBOR has values without a JSON form.
            record = None
            if self._is_durable:
                record = PutRetained(_encode_topic(topic), message.body.nq(), self._last_number + 1, owner.name)
        except Unrepresentable as exc:
            raise bad_arguments(str(exc)) from exc
        value = RetainedValue(topic, message.body, self._last_number + 1, size, owner)
        self._retained.check_room(value)
        self._retained.store(value)
        return record

    def restore(self, values: Iterable[PutRetained]) -> None:
        """Restore the retained values of a previous hub process."""
        for record in values:
            topic = tuple(msgspec.json.decode(record.topic, type=list[str]))
            body = Json(record.payload)
            size, owner = retained_memory(topic, body), owner_from_name(record.owner)
            # No limit: these values were accepted, and JSON may be larger than the CBOR that was counted then.
            self._retained.store(RetainedValue(topic, body, record.publication, size, owner))
            self._last_number = max(self._last_number, record.publication)

    def retained_values(self) -> Iterator[RetainedValue]:
        """Yield all retained values."""
        yield from self._retained

    def forget_retained(self, topic: Topic) -> list[StoreChange]:
        """Delete the retained value of a topic; return the changes for the store."""
        self._retained.remove(topic)
        self._retained_deliveries.forget(topic)
        return [DropRetained(_encode_topic(topic))] if self._is_durable else []

    def retained_value(self, topic: Topic) -> tuple[Payload, int] | None:
        """Return the retained value of a topic and the number of its publication."""
        value = self._retained.get(topic)
        return None if value is None else (value.body, value.publication)

    @property
    def last_number(self) -> int:
        """Number of the last publication."""
        return self._last_number

    def subscribe(self, session: Session, message: Subscribe, _now: float) -> Deliveries:
        """Add a subscription and deliver the retained values that it matches."""
        if not session.access.may_subscribe(message.pattern):
            raise Refusal(Reason.DENIED, f"you may not subscribe to {pattern_texts(message.pattern)[-1]}")
        if message.when_full == "block":
            raise Refusal(Reason.DENIED, "only the operator of the hub may set the overflow policy block")
        name, envelope = message.subscription, message.envelope
        subscriber = Subscriber(session.peer, name, envelope, message.when_full or "skip")
        self._subscriptions.add(message.pattern, subscriber, session.owner)
        deliveries: Deliveries = [Delivery(session.peer, Result(message.id, Value({"id": name})))]
        deliveries += self._retained_deliveries.begin(subscriber, message.pattern, session.owner, self._last_number)
        return deliveries

    def _count_retained_deliveries(self, deliveries: list[Delivery]) -> None:
        """Count deliveries of retained values."""
        for delivery in deliveries:
            event, session = delivery.message, self._sessions.get(delivery.peer)
            if isinstance(event, Event) and session is not None:
                self._traffic.topic_stats(event.topic).deliveries += 1
                self._traffic.protocol_stats(session.traits.protocol).deliveries += 1
        self._counters.deliveries += len(deliveries)

    def unsubscribe(self, session: Session, message: Unsubscribe, _now: float) -> Deliveries:
        """End a subscription."""
        was_subscribed = self._remove_subscription(session.peer, message.subscription)
        if message.id is None:
            return []
        if not was_subscribed:
            raise bad_arguments(f"there is no subscription {message.subscription}")
        return [Delivery(session.peer, Result(message.id))]

    def end_subscription(self, peer: str, subscription: str) -> Deliveries:
        """End the subscription of a slow consumer."""
        return [Delivery(peer, TopicClosed(subscription))] if self._remove_subscription(peer, subscription) else []

    def _remove_subscription(self, peer: str, subscription: str) -> bool:
        self._retained_deliveries.end(peer, subscription)
        return self._subscriptions.remove(peer, subscription)

    def revoke(self, session: Session) -> Deliveries:
        """End the subscriptions that the permissions of a peer forbid now."""
        deliveries: Deliveries = []
        for subscription in self._subscriptions.of_peer(session.peer):
            if not session.access.may_subscribe(subscription.pattern):
                deliveries += self.end_subscription(session.peer, subscription.subscriber.subscription)
        return deliveries

    def close_topic(self, session: Session, message: CloseTopic, _now: float) -> Deliveries:
        """End all subscriptions to exactly this topic, and delete its retained value."""
        session.access.check_publish(message.topic)
        self._check_close(session, message.topic)
        records: Deliveries = []
        if self._retained.get(message.topic) is not None:
            records = [Persist(record, []) for record in self.forget_retained(message.topic)]
        deliveries: Deliveries = [
            *records,
            *(
                Delivery(subscriber.peer, TopicClosed(subscriber.subscription))
                for subscriber in self._subscriptions.close_topic(message.topic)
            ),
        ]
        if message.id is not None:
            deliveries.append(Delivery(session.peer, Result(message.id)))
        return deliveries

    def _check_close(self, session: Session, topic: Topic) -> None:
        """Refuse to end subscriptions of others on a topic on which others may publish too."""
        allowed, text = session.access.close, topic_text(topic)
        if session.credentials.is_trusted or allowed is None or allowed.allows(text):
            return
        subscribers = (
            self._sessions[identity.peer].identity for identity in self._subscriptions.exact_subscribers(topic)
        )
        if any(identity != session.identity for identity in subscribers) and self._admission.may_others_publish(
            session, topic
        ):
            raise Refusal(Reason.DENIED, f"you may not close {text}: others subscribe to it, and may publish on it")

    def leave(self, session: Session) -> None:
        """End all subscriptions of a peer."""
        self._retained_deliveries.leave(session.peer)
        self._subscriptions.leave(session.peer)


def _encode_topic(topic: Topic) -> str:
    return msgspec.json.encode(topic).decode()
