"""One NQ peer, whichever link carries it: the asking half of the conversation, and what holds both halves together.

It never accepts by itself: `{a, i}` goes out when the hub says that the request is safe. It never ends by a fault: what
cannot be read is answered by an error object, and the conversation goes on (NQ-a10).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

import msgspec

from fiveways.errors import LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.model.names import spell
from fiveways.protocols import builtins
from fiveways.protocols.base import Setup
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.bridge import PLAIN_NAME, STYLES, Attached, body_of
from fiveways.protocols.nq.errors import Err, plain
from fiveways.protocols.nq.frames import Free, is_name, serialize_frame
from fiveways.protocols.nq.incoming import Following, Incoming
from fiveways.protocols.nq.messages import decode, write
from fiveways.protocols.nq.outbox import Asking, Common, Held, Options
from fiveways.protocols.nq.states import Asked, State, Step, advance
from fiveways.protocols.nq.streams import Receiver, Sender
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload, Value

Hear = Callable[[Any, Any, float], None]
Say = Callable[[Any, Any, float], None]
NOTHING: tuple[hub.Word, ...] = ()
