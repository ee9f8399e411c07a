"""Frames with secrets in many forms of protocols, headers, URLs and texts, and frames without secrets.

The secret is always `geheim`.
"""

import json
from typing import Any, Final

from fiveways.wire import cbor

SECRET: Final = "geheim"  # noqa: S105  not much of a secret
_SPELLINGS: Final = (
    *("apiKey", "api_key", "API-KEY", "X-Api-Key", "api.key", "APIKEY", "accessToken", "access_token", "client_secret"),
    *("clientSecret", "refresh_token", "Token", "TOKEN", "idToken", "PASSWORD", "Password", "dbPassword", "db_passwd"),
    *("passwd", "pwd", "MYSQL_PWD", "userpwd", "passphrase", "passCode", "pass", "secret", "Secrets", "secretKey"),
    *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "privateKey", "private_key", "credential"),
    *("credentials", "sessionId", "session_id", "PHPSESSID", "sid", "auth", "x-auth", "jwt", "otp", "csrf", "X-XSRF"),
)
_CREDENTIALS: Final = (
    "Bearer geheim",
    "bearer GEHEIM-geheim.geheim",
    "the header is Authorization: Bearer geheim",
    "Authorization: Digest username=geheim, response=geheim",
    "Cookie: a=geheim; b=geheim",
    "postgres://user:geheim@db.example/x",
    "see amqp://:geheim@mq and http://a.example/",
    "https://geheimgeheimgeheim@git.example/x.git",
    "https://a.example/cb?x=1&access_token=geheim#y",
    "https://a.example/?apiKey=geheim",
    "user=bob&password=geheim&x=1",
    "user%5Bpassword%5D=geheim",
    "%7B%22token%22%3A%22geheim%22%7D",
    "Server=db;User Id=x;Password=geheim;",
    "run --db-password geheim --verbose",
    "<login><password>geheim</password></login>",
    "password: geheim geheim",
    "api key: geheim",
    "your token is geheim",
    "-----BEGIN RSA PRIVATE KEY-----\ngeheim\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJnZWhlaW0ifQ.geheim",
    'log: {"token": "ge\\"geheim", "a": 1}',
    "{'password': 'geheim'}",
    '{"token":"geheim',
    '{"user":"bob","pass":"geheim',
    'half {\\"to\\u006ben\\":\\"geheim\\"',
)
_STRUCTURES: Final[tuple[object, ...]] = (
    {"a": [{"b": {"apiKey": {"x": [SECRET]}}}]},
    [["Authorization", "Bearer geheim"], ["Accept", "*/*"]],
    ["Accept", "*/*", "Authorization", "geheim"],
    {"name": "authorization", "value": "geheim"},
    {"Name": "X-Api-Key", "Value": "geheim"},
    {"key": "client_secret", "val": ["geheim"]},
    {"headers": [{"header": "Cookie", "content": "a=geheim"}]},
    {"auth": ["bob", "geheim"]},
    ["password", "geheim"],
    {"text": json.dumps({"token": SECRET})},
    {"text": json.dumps(json.dumps({"a": [{"api_key": SECRET}]}))},
    {"text": json.dumps({"text": json.dumps({"text": json.dumps({"Password": SECRET})})})},
    {"https://a:geheim@b.example": 1},
)


def _frames(value: object) -> list[tuple[str, bytes]]:
    """Return a value in a frame of each protocol."""
    text = json.dumps(value)
    return [
        ("umq", f"M1\nsome.method\n{text}".encode()),
        ("umq36", f'C1:["some.method",{text}]'.encode()),
        ("lrpm-json", f'[40,1,"some.method",{text},{{}}]'.encode()),
        ("lrpm-cbor", cbor.write([40, 1, "some.method", value, {}])),
        ("mqtt-rpc", text.encode()),
        ("nq", f'{{"t":"some-method","r":"1","d":{text}}}'.encode()),
        ("attachment", text.encode()),
    ]


def _chunked(name: bytes) -> bytes:
    """Return a CBOR text string in two chunks."""
    return b"\x7f" + b"".join(bytes([0x60 + len(part)]) + part for part in (name[:3], name[3:])) + b"\xff"


def _secret_frames() -> list[tuple[str, bytes]]:
    values: list[Any] = [{name: SECRET} for name in _SPELLINGS]
    values += [{"note to you": text} for text in _CREDENTIALS]
    values += _STRUCTURES
    frames = [frame for value in values for frame in _frames(value)]
    # Texts that are not JSON.
    for text in _CREDENTIALS:
        raw = text.encode()
        frames += [("umq", b"R1\n" + raw), ("umq36", b"R1:" + raw), ("mqtt-rpc", raw), ("attachment", raw)]
    # Handshakes and variables.
    frames += [
        *[("umq", b"H1.0.0\ngeheim"), ("umq", b"A1\nW1.0.0\ngeheim"), ("umq", b"SapiKey\ngeheim")],
        *[("umq", b"Shome\nhttps://u:geheim@h"), ("umq", b'M1\nhub:set\n{"name":"Token","value":"geheim"}')],
        *[("umq", b"M1\nhub:set\nTOKEN\ngeheim"), ("umq36", b"H1:geheim"), ("umq36", b"S:ACCESS_TOKEN=geheim")],
        *[("umq36", b'C1:["hub.set","api-key","geheim"]'), ("lrpm-json", b'[2,{"token":"geheim"},{}]')],
        *[("lrpm-json", b' [ 2.0, "geheim", {} ]'), ("lrpm-json", b'[3,{"x":"geheim"},{}]')],
        *[("lrpm-json", b'[4,{"hmac":"geheim"},{}]'), ("lrpm-cbor", cbor.write([2, {"token": SECRET}, {}]))],
        *[("lrpm-json", b'[40,1,"hub.set",["Token","geheim"],{}]'), ("lrpm-cbor", cbor.write([4, {"h": SECRET}]))],
        ("nq", b'[{"e":{"type":"sys","note":"peer","args":["geheim","geheim"]}}]'),
        ("nq", b'{"t":"hub-set","r":"1","d":{"name":"X-Token","value":"geheim"}}'),
    ]
    # Names with escapes, in chunks, or hidden by a duplicate key.
    frames += [
        ("lrpm-json", b'[40,1,"a",{"\\u0074\\u006F\\u006ben":"geheim"},{}]'),
        ("nq", b'{"t":"a","r":"1","d":"{\\"\\\\u0074oken\\":\\"geheim\\"}"}'),
        ("nq", b'{"t":"a","r":"1","d":{"x":{"token":"geheim"},"x":1}}'),
        ("lrpm-cbor", b"\x85\x18\x28\x01\x61a\xa1" + _chunked(b"password") + b"\x66geheim\xa0"),
        ("lrpm-cbor", cbor.write([40, 1, "a", {"raw": b'{"token":"geheim"}'}, {}])),
        ("lrpm-cbor", cbor.write([40, 1, "a", [[b"authorization", b"geheim"]], {}])),
    ]
    # Frames that cannot be parsed.
    frames += [
        ("lrpm-json", b'[40,1,"a",{"x":"geheim'),
        ("lrpm-json", b'eheim","geheim"],{}]'),
        ("lrpm-json", b'[40,1,"a",{"Token":geheim},{}]'),
        ("lrpm-json", b'["token","geheim"]'),
        ("lrpm-json", b'[40,1,"a",geheim,{}]'),
        ("nq", b'{"t":"a","d":"geheim",}'),
        ("lrpm-cbor", cbor.write([40, 1, "a", {"x": "geheim"}, {}])[:-1]),
        ("lrpm-cbor", cbor.write([40, 1, "a", {"x": "geheim"}, {}]) + b"x"),
        ("lrpm-json", b'"geheim"'),
        ("lrpm-cbor", b"\x85\x18\x28Token geheim"),
        ("lrpm-cbor", b"geheim"),
        ("nq", b'{"t":"a","d":{"x":"geheim"'),
        ("nq", b"geheim"),
        ("umq", b"\xffToken geheim"),
        ("umq", b"Qgeheim"),
        ("umq", b"R password=geheim"),
        ("umq36", b"geheim"),
        ("umq36", b"C1:\xff geheim"),
        ("mqtt-rpc", b"\x0a\x05Token\x12\x06geheim"),
        ("mqtt-rpc", b"\xff\xfePASSWORD=geheim"),
    ]
    return frames


_INNOCENT: Final[tuple[object, ...]] = (
    {"tokenizer": "bpe", "secretary": "Anna", "key": "k", "monkey": "m", "author": "A", "authority": "b"},
    {"public_key": "x", "primaryKey": 1, "keyboard": "y", "passenger": "z", "compass": 4, "president": "p"},
    {"max_tokens": 100, "tokenCount": 7, "hasPassword": True, "password": None, "auth": {"method": "none"}},
    {"text": "the secretary has the keys of the monkey house", "url": "https://a.example:8080/x?m=b@c&author=1"},
    {"text": "Basic plans cost 5", "time": "12:30", "ratio": "a=b", "keynote": "k", "inside": "s", "hotpot": "soup"},
    {"name": "colour", "value": "red", "session": "abc", "notes": ["tokenize", "secretion"], "x": "\u00fc"},
    ["author", "Ann", "key", "value"],
    [1.5, "1.10", "{", "[not json", '"', "password", "forgotten my password?"],
)


def _innocent_frames() -> list[tuple[str, bytes]]:
    return [frame for value in _INNOCENT for frame in _frames(value)] + [
        ("umq", b"M1\nauth.token.verify\n[1,2]"),
        ("umq", b"R1\nthe secretary is here"),
        ("umq36", b'C1:["auth.token.verify",1]'),
        ("lrpm-json", b'[40, 1, "auth.token.verify", [ 1.10 ], {}]'),
        ("lrpm-json", b'[40,1,"hub.register",{"name":"auth.token.verify","kind":"unary"},{}]'),
        ("lrpm-cbor", cbor.write([40, 1, "auth.token.verify", "yes", {}])),
        ("nq", b'{"t":"auth-token-verify","r":"1","d":[1]}'),
        ("mqtt-rpc", b"\x08\x01\x12\x0a\x0a\x03add\x12\x03key"),
        ("attachment", b"\xff\xd8\xff token of a picture"),
        ("attachment", b"Have the token"),
    ]


WITH_SECRET: Final = _secret_frames()
INNOCENT: Final = _innocent_frames()
