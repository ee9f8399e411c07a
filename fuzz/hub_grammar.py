"""The grammar of the hub fuzzer: random messages of a client, and random responses."""

from random import Random
from typing import Final

from fiveways.errors import Reason
from fiveways.model import messages as msgs
from fiveways.model import topics
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import Json, Payload, Value

METHODS: Final = ("alpha", "beta.one", "beta.two", "beta.two.deep", "gamma", "route.x", "route.s.y")
ROUTES: Final = ("route", "beta", "r")
TOPICS: Final = ("t", "t.u", "t.u.v", "sensors.a.heat", "sensors.b.heat", "$s")
PATTERNS: Final = (*TOPICS, "t.*", "#", "#", "#", "#", "sensors.*.heat", "sens*", "*.u*", "t/#", "+/u")
QUEUES: Final = ("jobs", "mail", "x")
_TEXTS: Final = ("", "x", "1.10", "null", "y" * 3000, "\ud800", "\N{HORSE}", "a\nb", "$base64")
_VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    b"\0\xff",
    [],
    [1, [2]],
    {},
    {"$base64": "AA=="},
    {"a": 1},
)
_GLOBS: Final = ("*", "j*", "m*", "x", "b*", "gamma")
_STORED_KINDS: Final = ("requests", "jobs", "values")
_KINDS: Final = ("unary", "unary", "unary", "server", "client", "both")
_SHARINGS: Final = ("", "", "round_robin", "random", "first", "open")
_POLICIES: Final = ("", "", "skip", "close", "unsubscribe", "block")


def body(random: Random) -> Payload:
    """Return a body of any kind."""
    kind = random.random()
    if kind < 0.3:
        return Value(random.choice(_TEXTS))
    if kind < 0.4:
        return Json(b'{"a":[1,{"b":null}],"c":"d"}')
    return Value(random.choice(_VALUES))


def small(random: Random) -> Payload:
    """Return a body that every protocol can carry and the store can hold."""
    return Value(random.choice((None, 1, "x", [1, 2], {"a": "b"})))


def topic(random: Random) -> Topic:
    """Return a topic."""
    return topics.parse(random.choice(TOPICS), topics.UMQ)


def pattern(random: Random) -> Pattern:
    """Return a pattern, in the style of UMQ or MQTT."""
    text = random.choice(PATTERNS)
    return topics.parse_pattern(text, topics.MQTT if set("/+#") & set(text) else topics.UMQ)


def request(
    random: Random, name: str, attachments: tuple[str, ...], tokens: list[str], peers: list[str]
) -> msgs.HubMessage:
    """Return a message that gets a result or a failure."""
    method, draw = random.choice(METHODS), random.random()
    if draw < 0.3:
        streams = random.random() < 0.3
        return msgs.Call(
            name,
            method,
            body(random),
            attachments=() if streams else attachments,
            timeout=random.choice((None, None, None, 0.5, 20.0)),
            more=streams and random.random() < 0.5,
            stream=streams,
            progress=random.random() < 0.2,
            extras={"note": Value("n")} if random.random() < 0.1 else None,
        )
    if draw < 0.42:
        return msgs.Call(name, method, small(random))
    if draw < 0.6:
        return msgs.Call(name, *_built_in(random, peers))
    if draw < 0.65:
        return msgs.Call(name, random.choice([*tokens[-4:], "none"]), small(random), callback=True)
    return _registration_or_topic(random, name, attachments)


def _built_in(random: Random, peers: list[str]) -> tuple[str, Payload]:
    queue = random.choice(QUEUES)
    calls: tuple[tuple[str, object], ...] = (
        *(("hub.push", [queue, random.choice(("job", {"a": 1}, 1, None))]),) * 5,
        *(("hub.pull", [queue, f"c{random.randrange(3)}"]),) * 5,
        *(("hub.callback", {"id": f"c{random.randrange(3)}"}),) * 3,
        ("hub.push", [queue, random.choice(_VALUES)]),
        ("hub.dead", [queue]),
        ("hub.dead", {"queue": queue, "job": random.randrange(1, 10)}),
        ("hub.redrive", [queue]),
        *(("hub.redrive", {"queue": queue, "job": random.randrange(1, 10)}),) * 2,
        *(("hub.drop", {"queue": queue, "job": random.randrange(1, 10)}),) * 2,
        ("hub.get", ["v", random.choice(peers)]),
        ("hub.owed", {"kind": random.choice(("", *_STORED_KINDS))}),
        *(("hub.purge", {"kind": random.choice(_STORED_KINDS), "name": random.choice(_GLOBS)}),) * 2,
        ("hub.peers", None),
        ("hub.peers", {"peer": random.choice(peers)}),
        ("hub.queues", None),
        ("hub.stats", None),
        ("hub.traffic", None),
        ("hub.rights", None),
        ("hub.time", None),
        ("hub.ping", None),
        ("hub.echo", random.choice(_VALUES)),
        ("hub.nothing", None),
        *(("app.add", random.choice(([1, 2], 1, {"a": 1, "b": None}, None))),) * 2,
        *(("app.count", random.randrange(4)),) * 2,
        *(("app.ask", random.choice(METHODS)),) * 2,
        *(("app.relay", random.choice(METHODS)),) * 2,
        ("app.dismiss", None),
    )
    method, value = random.choice(calls)
    return method, Value(value)


def _registration_or_topic(random: Random, name: str, attachments: tuple[str, ...]) -> msgs.HubMessage:
    method, published_topic, subscription = random.choice(METHODS), topic(random), f"s{random.randrange(4)}"
    share, kind, policy = random.choice(_SHARINGS), random.choice(_KINDS), random.choice(_POLICIES)
    is_route = random.random() < 0.15
    registered = random.choice(ROUTES) if is_route else method
    choices: tuple[msgs.HubMessage, ...] = (
        *(msgs.Register(name, registered, route=is_route, kind=kind, share=share, doc=random.choice(("", "text"))),)
        * 6,
        msgs.Unregister(name, registered, route=is_route),
        *(msgs.Subscribe(name, pattern(random), subscription, random.random() < 0.3, policy),) * 4,
        msgs.Unsubscribe(name, subscription),
        *(msgs.Publish(name, published_topic, body(random), attachments, random.random() < 0.5, random.random() < 0.2),)
        * 4,
        msgs.CloseTopic(name, published_topic),
        msgs.SetVariable(name, random.choice("vw"), body(random), attachments),
        msgs.UnsetVariable(name, "v"),
        msgs.Discover(name, random.choice(("", "hub", "beta", "route.", "alpha", "*"))),
    )
    return random.choice(choices)


def one_way(random: Random, open_ids: list[str]) -> msgs.HubMessage:
    """Return a message without a response."""
    message_id = random.choice(open_ids[-6:] or ["none"])
    choices: tuple[msgs.HubMessage, ...] = (
        msgs.Part(message_id, body(random), random.random() < 0.3),
        msgs.Part(message_id, None, last=True),
        msgs.Cancel(message_id),
        msgs.Acknowledged(message_id),
        msgs.Publish(None, topic(random), body(random), (), random.random() < 0.5),
        msgs.Unsubscribe(None, f"s{random.randrange(4)}"),
        msgs.SetVariable(None, "v", body(random)),
        msgs.Result(str(random.randrange(50))),
        msgs.Update("u", body(random)),
        msgs.UpdatesClosed("u"),
    )
    return random.choice(choices)


def answer(random: Random, request_: msgs.HubMessage, attachments: tuple[str, ...]) -> msgs.HubMessage:
    """Return a response, or a part of one, to a request of the hub."""
    name = str(getattr(request_, "id", ""))
    if isinstance(request_, msgs.Discover):
        choices: tuple[msgs.HubMessage, ...] = (
            msgs.Description(name, ("x", "s.y", "bad\n"), ("s",)),
            msgs.Description(name, doc="d"),
            msgs.Failure(name, Reason.NO_SUCH_METHOD),
        )
        return random.choice(choices)
    draw = random.random()
    if draw < 0.5:
        return msgs.Result(name, small(random))
    if draw < 0.6:
        return msgs.Result(name, body(random), attachments)
    if draw < 0.75:
        reason = random.choice(
            (Reason.RAISED, Reason.OVERLOADED, Reason.NO_SUCH_METHOD, Reason.NO_SUCH_CALLBACK, Reason.BAD_ARGUMENTS)
        )
        return msgs.Failure(name, reason, "no", data=body(random) if random.random() < 0.3 else None)
    if draw < 0.8:
        return msgs.Progress(name, body(random))
    if draw < 0.9:
        return msgs.Result(name, body(random), stream=True, last=False)
    return msgs.Result(name, None if random.random() < 0.5 else body(random), stream=True)
