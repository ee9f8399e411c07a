"""A plain ZeroMQ program that stamps labels, with JSON requests and responses.

It does not know the hub, which sends it the calls of `labels.stamp` (`zmq.targets`). It could as well be written in C.
"""

import json
import sys
import zlib

import zmq


def main(endpoint: str) -> None:
    """Respond to requests until the process is ended."""
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.connect(endpoint)
        while True:
            request = json.loads(socket.recv())
            text = str(request.get("text", "")) if isinstance(request, dict) else str(request)
            socket.send(json.dumps({"text": text.upper(), "code": f"{zlib.crc32(text.encode()):08x}"}).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
