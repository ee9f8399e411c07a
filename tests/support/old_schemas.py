"""The tables of older versions of the store, as their releases created them."""

VERSION_1 = """
CREATE TABLE peer (peer TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL, seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE request (
    id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT NOT NULL,
    word BLOB NOT NULL, expires_at REAL NOT NULL, state INTEGER NOT NULL,
    UNIQUE (peer, key)
);
CREATE TABLE tomb (id INTEGER PRIMARY KEY, peer TEXT NOT NULL, key TEXT, until REAL NOT NULL);
CREATE TABLE item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, number INTEGER NOT NULL,
    word BLOB NOT NULL, tries INTEGER NOT NULL, why TEXT, at REAL,
    UNIQUE (queue, number)
);
CREATE TABLE retained (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, word BLOB NOT NULL, publication INTEGER NOT NULL
)
"""
