"""The grammar of the hub's fuzzer: what a client may say, as the hub's own words, and what it answers."""

from random import Random
from typing import Final

from fiveways.errors import Reason
from fiveways.model import messages as words
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
_HELD: Final = ("requests", "jobs", "values")
_KINDS: Final = ("unary", "unary", "unary", "server", "client", "both")
_SHARES: Final = ("", "", "round_robin", "random", "first", "open")
_POLICIES: Final = ("", "", "skip", "close", "unsubscribe", "block")


def body(random: Random) -> Payload:
    """A body of any kind."""
    kind = random.random()
    if kind < 0.3:
        return Value(random.choice(_TEXTS))
    if kind < 0.4:
        return Json(b'{"a":[1,{"b":null}],"c":"d"}')
    return Value(random.choice(_VALUES))


def small(random: Random) -> Payload:
    """A body that every protocol can carry and the store can hold."""
    return Value(random.choice((None, 1, "x", [1, 2], {"a": "b"})))


def topic(random: Random) -> Topic:
    """A topic."""
    return topics.parse(random.choice(TOPICS), topics.UMQ)


def pattern(random: Random) -> Pattern:
    """A pattern, in the style of UMQ or MQTT."""
    text = random.choice(PATTERNS)
    return topics.parse_pattern(text, topics.MQTT if set("/+#") & set(text) else topics.UMQ)


def request(
    random: Random, name: str, attachments: tuple[str, ...], tokens: list[str], peers: list[str]
) -> words.HubMessage:
    """Something that is answered with a result or a failure."""
    method, pick = random.choice(METHODS), random.random()
    if pick < 0.3:
        streams = random.random() < 0.3
        return words.Call(
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
    if pick < 0.42:
        return words.Call(name, method, small(random))
    if pick < 0.6:
        return words.Call(name, *_built_in(random, peers))
    if pick < 0.65:
        return words.Call(name, random.choice([*tokens[-4:], "none"]), small(random), callback=True)
    return _about_names_and_topics(random, name, attachments)


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
        ("hub.owed", {"kind": random.choice(("", *_HELD))}),
        *(("hub.purge", {"kind": random.choice(_HELD), "name": random.choice(_GLOBS)}),) * 2,
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


def _about_names_and_topics(random: Random, name: str, attachments: tuple[str, ...]) -> words.HubMessage:
    method, where, subscription = random.choice(METHODS), topic(random), f"s{random.randrange(4)}"
    share, kind, policy = random.choice(_SHARES), random.choice(_KINDS), random.choice(_POLICIES)
    is_route = random.random() < 0.15
    offered = random.choice(ROUTES) if is_route else method
    said: tuple[words.HubMessage, ...] = (
        *(words.Register(name, offered, route=is_route, kind=kind, share=share, doc=random.choice(("", "text"))),) * 6,
        words.Unregister(name, offered, route=is_route),
        *(words.Subscribe(name, pattern(random), subscription, random.random() < 0.3, policy),) * 4,
        words.Unsubscribe(name, subscription),
        *(words.Publish(name, where, body(random), attachments, random.random() < 0.5, random.random() < 0.2),) * 4,
        words.CloseTopic(name, where),
        words.SetVariable(name, random.choice("vw"), body(random), attachments),
        words.UnsetVariable(name, "v"),
        words.Discover(name, random.choice(("", "hub", "beta", "route.", "alpha", "*"))),
    )
    return random.choice(said)


def remark(random: Random, open_ids: list[str]) -> words.HubMessage:
    """Something that is not answered."""
    some = random.choice(open_ids[-6:] or ["none"])
    said: tuple[words.HubMessage, ...] = (
        words.Part(some, body(random), random.random() < 0.3),
        words.Part(some, None, last=True),
        words.Cancel(some),
        words.Acknowledged(some),
        words.Publish(None, topic(random), body(random), (), random.random() < 0.5),
        words.Unsubscribe(None, f"s{random.randrange(4)}"),
        words.SetVariable(None, "v", body(random)),
        words.Result(str(random.randrange(50))),
        words.Update("u", body(random)),
        words.UpdatesClosed("u"),
    )
    return random.choice(said)


def answer(random: Random, asked: words.HubMessage, attachments: tuple[str, ...]) -> words.HubMessage:
    """An answer, or a part of one, to what the hub asked."""
    name = str(getattr(asked, "id", ""))
    if isinstance(asked, words.Discover):
        told: tuple[words.HubMessage, ...] = (
            words.Description(name, ("x", "s.y", "bad\n"), ("s",)),
            words.Description(name, doc="d"),
            words.Failure(name, Reason.NO_SUCH_METHOD),
        )
        return random.choice(told)
    pick = random.random()
    if pick < 0.5:
        return words.Result(name, small(random))
    if pick < 0.6:
        return words.Result(name, body(random), attachments)
    if pick < 0.75:
        reason = random.choice(
            (Reason.RAISED, Reason.OVERLOADED, Reason.NO_SUCH_METHOD, Reason.NO_SUCH_CALLBACK, Reason.BAD_ARGUMENTS)
        )
        return words.Failure(name, reason, "no", data=body(random) if random.random() < 0.3 else None)
    if pick < 0.8:
        return words.Progress(name, body(random))
    if pick < 0.9:
        return words.Result(name, body(random), stream=True, last=False)
    return words.Result(name, None if random.random() < 0.5 else body(random), stream=True)
