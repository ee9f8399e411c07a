"""A plain ZeroMQ program that knows nothing of the hub: it stamps labels, JSON in and JSON out.

The hub gives it the work of the method `labels.stamp` (`zmq.targets`). It could as well be written in C.
"""

import json
import sys
import zlib

import zmq


def main(endpoint: str) -> None:
    """Answer whoever asks, until the process is ended."""
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.connect(endpoint)
        while True:
            asked = json.loads(socket.recv())
            text = str(asked.get("text", "")) if isinstance(asked, dict) else str(asked)
            socket.send(json.dumps({"text": text.upper(), "code": f"{zlib.crc32(text.encode()):08x}"}).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
