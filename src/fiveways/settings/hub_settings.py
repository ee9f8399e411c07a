"""Conversion of settings for the hub."""

from dataclasses import fields
from importlib.metadata import version

from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.settings.sections import AuthSettings, IdentitySettings, Settings


def to_hub_settings(settings: Settings) -> HubSettings:
    """Return the settings of the hub, without those of transports and other layers."""
    limits, auth = settings.limits, settings.auth
    return HubSettings(
        call_timeout=settings.calls.timeout,
        max_timeout=settings.calls.max_timeout,
        login_timeout=auth.login_timeout,
        anonymous=auth.anonymous,
        identities=tuple(_to_identity(identity) for identity in auth.identity),
        max_failures=auth.max_failures,
        max_ban=auth.max_ban,
        name_grace=auth.name_grace,
        anonymous_permissions=_to_permissions(auth),
        topic_policies=tuple(settings.topics.when_full.items()),
        share=limits.share,
        anonymous_share=limits.anonymous_share,
        max_sessions=limits.max_sessions,
        max_resumable=limits.max_resumable,
        max_offers=limits.max_offers,
        max_subscription_bytes=limits.max_subscription_bytes,
        max_match_steps=limits.max_match_steps,
        max_retained=limits.max_retained,
        max_retained_bytes=limits.max_retained_bytes,
        max_queues=limits.max_queues,
        max_queue=limits.max_queue,
        max_queue_bytes=limits.max_queue_bytes,
        max_tries=limits.max_tries,
        retry_delay=limits.retry_delay,
        max_retry_delay=limits.max_retry_delay,
        max_owed=limits.max_owed,
        rate=limits.rate,
        max_owed_bytes=limits.max_owed_bytes,
        max_given=limits.max_given,
        max_unacknowledged_bytes=limits.max_unacknowledged_bytes,
        max_incomplete_bytes=limits.max_incomplete_bytes,
        request_ttl=settings.nq.request_ttl,
        answer_ttl=settings.nq.answer_ttl,
        duplicate_window=settings.nq.duplicate_window,
        max_methods=settings.metrics.max_methods,
        max_topics=settings.metrics.max_topics,
        version=version("fiveways"),
    )


def _to_identity(identity: IdentitySettings) -> Identity:
    return Identity(
        identity.name,
        token=identity.token.reveal(),
        secret=identity.secret.reveal(),
        permissions=_to_permissions(identity),
    )


def _to_permissions(section: IdentitySettings | AuthSettings) -> Permissions:
    return Permissions(**{permission.name: getattr(section, permission.name) for permission in fields(Permissions)})
