"""Random inputs: damaged vectors. Reproducible by seed, with the standard library only."""

from collections.abc import Callable, Sequence
from random import Random

MAX_SIZE = 4096
TOKENS = (
    *(
        b"",
        b"\0",
        b"\xff",
        b"\x7f",
        b"\x80",
        b"\n",
        b":",
        b"A",
        b"A1:",
        b"A9\n",
        b"0",
        b"-1",
        b"1e999",
        b"null",
        b"true",
    ),
    *(b'"', b"\\ud800", b"[", b"]", b"{", b"}", b",", b"[]", b"{}", b"13.0", b"18446744073709551616", b'"$base64"'),
    *(
        b"\x9f",
        b"\xbf",
        b"\xfb\x7f\xf0\0\0\0\0\0\0",
        b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xc2\x80",
        b"\xed\xa0\x80",
    ),
    *(
        b"hub.",
        b"hub-",
        b"callback",
        b"\xf0\x9f\x90\x8e",
        b"[" * 200,
        b"\x81" * 200,
        b"\x08\x96\x01",
        b"\x12\x05",
        b"\x1a",
    ),
)


def mutate(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed, or two crossed seeds, with one to eight mutations."""
    data = random.choice(seeds)
    if random.random() < 0.2:
        second = random.choice(seeds)
        data = data[: random.randint(0, len(data))] + second[random.randint(0, len(second)) :]
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        data = random.choice(_DAMAGES)(random, data)[:MAX_SIZE]
    return data


def _cut(random: Random, data: bytes) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + data[start + random.choice((1, 1, 2, 4, 16)) :]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice(TOKENS) + data[at:]


def _replace(random: Random, data: bytes) -> bytes:
    at, token = random.randint(0, len(data)), random.choice(TOKENS)
    return data[:at] + token + data[at + len(token) :]


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _repeat(random: Random, data: bytes) -> bytes:
    start = random.randint(0, len(data))
    piece = data[start : start + random.choice((1, 3, 10, 40))]
    return data[:start] + piece * random.choice((2, 3, 20)) + data[start:]


def _noise(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.randbytes(random.choice((1, 2, 4, 30))) + data[at:]


_DAMAGES: tuple[Callable[[Random, bytes], bytes], ...] = (_cut, _insert, _replace, _flip, _flip, _repeat, _noise)
