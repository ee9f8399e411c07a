"""Scanner for CBOR (RFC 8949): finds the end of an item and checks that it is well-formed, without building values."""

import re

from fiveways.errors import Malformed

# Remaining items of an indefinite array or map: more than any buffer holds, to distinguish both kinds from each
# other and from definite containers. A map at the start of a pair has an even number of remaining items.
INDEFINITE = 1 << 57
INDEFINITE_MAP = 1 << 58
INDEFINITE_ARRAY = 1 << 59

ARGUMENT_BYTES = {24: 1, 25: 2, 26: 4, 27: 8}
"""Additional information -> bytes of the argument after the initial byte."""

MAX_CONTAINERS = 1 << 17
"""Maximum arrays, maps and tags of one item: an empty map is one byte, but costs a hundred times as much as others."""
TRUNCATED = "CBOR ends inside an item"

BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(2, 8)


def _item_width(code: int) -> int:
    """Return the size of an item with this initial byte; negative for a short text, 0 if more bytes decide."""
    major, low = code >> 5, code & 31
    if major < BYTES or (major == SIMPLE and low != 24):
        return 1 if low < 24 else 1 + ARGUMENT_BYTES[low] if low in ARGUMENT_BYTES else 0
    if low < 24 and major in (BYTES, TEXT):
        return 1 + low if major == BYTES else -1 - low
    return 0


ITEM_WIDTH = tuple(map(_item_width, range(256)))

# 32 scalar items in one call of the regex engine. The alternatives differ in their first byte: no backtracking.
BLOCK_ITEMS = 32
_SCALAR_ITEM = (
    rb"[\x00-\x17\x20-\x37\xe0-\xf7]|[\x18\x38].|[\x19\x39\xf9]..|[\x1a\x3a\xfa].{4}|[\x1b\x3b\xfb].{8}|\x60|"
    + b"|".join(rb"%c[\x00-\x7f]{%d}" % (0x60 + size, size) for size in range(1, 24))
)
_match_block = re.compile(rb"(?:%s){%d}" % (_SCALAR_ITEM, BLOCK_ITEMS), re.DOTALL).match


def read_head(raw: bytes, at: int) -> tuple[int, int, int]:
    """Parse the head of the item at `at`; return major type, argument and end of the head.

    The argument is -1 for an indefinite length and for the break (major type 7). For a float it is its bits as an
    unsigned integer, for a simple value its number.

    Raises:
        Malformed: The head is truncated or not well-formed.
    """
    try:
        code = raw[at]
        low = code & 31
        if low < 24:
            return code >> 5, low, at + 1
        if low == 24:
            if code == 0xF8 and raw[at + 1] < 32:
                raise Malformed("a simple value below 32 in two bytes")
            return code >> 5, raw[at + 1], at + 2
    except IndexError:
        raise Malformed(TRUNCATED) from None
    if low == 31 and code >= 0x5F and code != 0xDF:
        return code >> 5, -1, at + 1
    if low not in ARGUMENT_BYTES:
        raise Malformed(f"invalid initial byte 0x{code:02x}")
    end = at + 1 + ARGUMENT_BYTES[low]
    if end > len(raw):
        raise Malformed(TRUNCATED)
    return code >> 5, int.from_bytes(raw[at + 1 : end], "big"), end


def skip(raw: bytes, at: int, max_depth: int = 128, max_containers: int = MAX_CONTAINERS) -> int:
    """Return the end of the item at `at`.

    Raises:
        Malformed: The item is truncated or not well-formed, a text is not UTF-8, or there are too many or too deep
            arrays, maps and tags.
    """
    room = max_containers
    outer: list[int] = []  # open containers: remaining items including the current one
    todo = 1
    try:
        while True:
            # An item that ends after the data is detected at the next initial byte, or in `_check_end`.
            code = raw[at]
            if (width := ITEM_WIDTH[code]) > 0:
                at += width
            elif width:
                # The initial byte of a short text is ASCII, too.
                if not raw[at : (end := at - width)].isascii():
                    str(raw[at + 1 : end], "utf-8")
                at = end
            elif code == 0x78:
                end = at + 2 + raw[at + 1]
                if not raw[at + 2 : end].isascii():
                    str(raw[at + 2 : end], "utf-8")
                at = end
            elif 0x80 <= code < 0xE0:
                if len(outer) >= max_depth:
                    raise Malformed(f"nested deeper than {max_depth}")
                outer.append(todo)
                room -= 1
                if room < 0:
                    raise Malformed(f"more than {max_containers} arrays, maps and tags")
                if code < 0x98:
                    at, todo = at + 1, code - 0x7F
                elif 0xA0 <= code < 0xB8:
                    at, todo = at + 1, 2 * (code - 0xA0) + 1
                else:
                    at, todo = _enter_by_blocks(raw, at)
            elif code == 0xFF:
                check_break(todo)
                at += 1
                todo = 1
            else:
                at = _skip_long_item(raw, at)
            todo -= 1
            while not todo:
                if not outer:
                    return _check_end(raw, at)
                todo = outer.pop() - 1
    except IndexError:
        raise Malformed(TRUNCATED) from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"CBOR text is not UTF-8: {exc.reason}") from None


def _check_end(raw: bytes, at: int) -> int:
    """Return the end of an item; Malformed if it is after the end of the data."""
    if at > len(raw):
        raise Malformed(TRUNCATED)
    return at


def enter(raw: bytes, at: int) -> tuple[int, int]:
    """Enter the array, map or tag at `at`; return the offset of its first item, and its number of items plus one."""
    major, argument, at = read_head(raw, at)
    if major == TAG:
        return at, 2
    if argument < 0:
        return at, (INDEFINITE_MAP if major == MAP else INDEFINITE_ARRAY) + 1
    items = 2 * argument if major == MAP else argument
    if items > len(raw) - at:
        raise Malformed(TRUNCATED)
    return at, items + 1


def _enter_by_blocks(raw: bytes, at: int) -> tuple[int, int]:
    """Enter a container, and skip the scalar items at its beginning in blocks."""
    at, todo = enter(raw, at)
    while todo > BLOCK_ITEMS and (block := _match_block(raw, at)):
        at = block.end()
        todo -= BLOCK_ITEMS
    return at, todo


def check_break(todo: int) -> None:
    """Raise Malformed for a break that does not end an indefinite array, or an indefinite map after a whole pair."""
    if todo < INDEFINITE or (todo <= INDEFINITE_MAP and todo & 1):
        raise Malformed("a break that ends nothing")


def read_string(raw: bytes, at: int, major: int, size: int) -> tuple[str | bytes, int]:
    """Return the text or byte string after a head that ends at `at`, and its end. May raise UnicodeDecodeError."""
    if size < 0:
        return _read_chunks(raw, at, major)
    end = at + size
    if end > len(raw):
        raise Malformed(TRUNCATED)
    return (str(raw[at:end], "utf-8") if major == TEXT else raw[at:end]), end


def _read_chunks(raw: bytes, at: int, major: int) -> tuple[str | bytes, int]:
    """Join the chunks of an indefinite string: definite strings of the same kind, each valid UTF-8 if it is text."""
    chunks: list[bytes] = []
    while True:
        kind, size, at = read_head(raw, at)
        if kind == SIMPLE and size < 0:
            whole = b"".join(chunks)
            return (str(whole, "utf-8") if major == TEXT else whole), at
        if kind != major or size < 0:
            raise Malformed("a string has a chunk of another type")
        end = at + size
        if end > len(raw):
            raise Malformed(TRUNCATED)
        chunk = raw[at:end]
        if major == TEXT:
            str(chunk, "utf-8")
        chunks.append(chunk)
        at = end


def _skip_long_item(raw: bytes, at: int) -> int:
    """Return the end of a string or simple value that the table of widths does not cover."""
    major, argument, at = read_head(raw, at)
    return at if major == SIMPLE else read_string(raw, at, major, argument)[1]
