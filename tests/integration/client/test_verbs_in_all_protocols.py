"""All methods of the client in every protocol, and between protocols, with a real hub."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.responses import Reply
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.errors import CallFailed, CallTimeout, ConnectionLost, NotExecuted, Reason, Refused
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.settings.operations import AppSettings
from fiveways.settings.sections import ServerSettings
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test
from tests.support.scripted_hub import EVERY, RESUMABLE, URLS, wait_for_state

pairs = pytest.mark.parametrize(("one", "other"), [(one, other) for one in EVERY for other in EVERY])
every_protocol = pytest.mark.parametrize("protocol", EVERY)


def at(place: Place, protocol: str, **settings: object) -> Connector:
    return connect(URLS[protocol].replace("hub", f"127.0.0.1:{place.port}"), **settings)  # type: ignore[arg-type]


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def count(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


async def turn(context: Context, times: int = 1) -> Reply:
    data = await context.attachments()
    return Reply(times, [each[::-1] for each in data])


async def fail() -> None:
    raise RuntimeError("broken")


async def stop() -> AsyncIterator[int]:
    yield 1
    raise RuntimeError("broken")


@pairs
@async_test
async def test_calls_between_protocols(one: str, other: str) -> None:
    async with hub() as place, at(place, one) as caller, at(place, other) as callee:
        await callee.register("Math:add", add)
        assert await caller.call("math.add", [2, 3], timeout=5.0) == 5
        assert await caller.call("Math:add", {"a": 2, "b": 0.5}) == 2.5
        with pytest.raises(NotExecuted) as unfit:
            await caller.call("math.add", {"a": 2, "c": 3})
        assert unfit.value.reason is Reason.BAD_ARGUMENTS
        assert unfit.value.text == "bad arguments: unknown argument 'c'; the arguments are a, b"
        with pytest.raises(NotExecuted) as caught:
            await caller.call("math.sub")
        assert caught.value.reason is Reason.NO_SUCH_METHOD
        await callee.unregister("math.add")
        # In nq, a call waits for a callee that was registered before.
        with pytest.raises(CallTimeout if one in RESUMABLE else NotExecuted):
            await caller.call("math.add", [2, 3], timeout=0.05 if one in RESUMABLE else None)


@pairs
@async_test
async def test_failures_streams_and_attachments_between_protocols(one: str, other: str) -> None:
    async with hub() as place, at(place, one) as caller, at(place, other) as callee:
        await callee.register("fail", fail)
        with pytest.raises(CallFailed, match=r"^the method failed \(reference [0-9a-f]{12}\)$"):
            await caller.call("fail")
        await callee.register("stop", stop)
        with pytest.raises(CallFailed, match=r"^the method failed \(reference [0-9a-f]{12}\)$"):
            [part async for part in caller.stream("stop")]
        await callee.register("count", count)
        assert [part async for part in caller.stream("count", [3])] == [0, 1, 2]
        assert await caller.call("count", [1]) == [0]
        assert [part async for part in caller.stream("count", [0])] == []
        await callee.register("photo.turn", turn)
        reply = await caller.call_reply("photo.turn", [2], attachments=[b"abc", b""])
        assert (reply.value, list(reply.attachments)) == (2, [b"cba", b""])


@every_protocol
@async_test
async def test_show_errors_sends_exceptions_of_functions(protocol: str) -> None:
    async with hub() as place, at(place, protocol, show_errors=True) as peer:
        await peer.register("fail", fail)
        with pytest.raises(CallFailed, match=r"^RuntimeError: broken$"):
            await peer.call("fail")


@pytest.mark.parametrize("show_errors", [False, True])
@async_test
async def test_setting_of_the_hub_shows_errors_of_its_application(show_errors: bool) -> None:
    app = App()
    app.method("fail")(fail)
    shown = replace(settings(), app=AppSettings(show_errors))
    async with hub(shown, app=app) as place, at(place, "umq") as peer:
        with pytest.raises(CallFailed, match=r"^RuntimeError: broken$" if show_errors else "^the method failed"):
            await peer.call("fail")
        place.server.reload(replace(settings(), app=AppSettings(not show_errors)))
        with pytest.raises(CallFailed, match="^the method failed" if show_errors else "^RuntimeError: broken$"):
            await peer.call("fail")


@dataclass
class Job:
    truck: str
    to: str = "depot"


async def plan(job: Job) -> Job:
    return job


async def plans(jobs: list[Job]) -> AsyncIterator[Job]:
    for job in jobs:
        yield job


@pairs
@async_test
async def test_dataclass_arguments_are_returned_with_defaults(one: str, other: str) -> None:
    async with hub() as place, at(place, one) as caller, at(place, other) as callee:
        await callee.register("plan", plan)
        assert await caller.call("plan", {"job": {"truck": "t1"}}) == {"truck": "t1", "to": "depot"}
        await callee.register("plans", plans)
        assert await caller.call("plans", [[{"truck": "t1"}]]) == [{"truck": "t1", "to": "depot"}]


@pairs
@async_test
async def test_events_between_protocols(one: str, other: str) -> None:
    async with hub() as place, at(place, one) as publisher, at(place, other) as subscriber:
        await publisher.publish("sensors.roof.temperature", 20, retain=True)
        async with subscriber.subscribe("sensors.*.temperature") as events:
            assert (await anext(events)).data == 20
            await publisher.publish("sensors.cellar.temperature", {"t": 12}, attachments=[b"photo"])
            event = await anext(events)
            assert (event.topic, event.data) == ("sensors.cellar.temperature", {"t": 12})
            assert await event.attachments() == [b"photo"]
        async with subscriber.subscribe("sensors.roof.temperature") as events:
            assert (await anext(events)).data == 20
            await publisher.publish("sensors.roof.temperature", "hot", confirm=False)
            assert (await anext(events)).data == "hot"
            await publisher.close_topic("sensors.roof.temperature")
            assert [event.data async for event in events] == []


@pairs
@async_test
async def test_callbacks_variables_and_jobs_between_protocols(one: str, other: str) -> None:
    async with hub() as place, at(place, one) as first, at(place, other) as second:
        token = await first.callback(add)
        assert await second.call(f"callback.{token}", [2, 3]) == 5
        with pytest.raises(NotExecuted) as caught:
            await second.call(f"callback.{token}", [2, 3])
        assert caught.value.reason is Reason.NO_SUCH_CALLBACK
        await first.vars.set("language", {"code": "cs"})
        assert await second.vars.get("language", peer=first.session) == {"code": "cs"}
        await first.vars.unset("language")
        assert await first.vars.get("language") is None
        assert await first.push("work", {"n": 1}) == 1
        async with second.pull("work") as job:
            assert job.data == {"n": 1}
        with pytest.raises(CallTimeout):
            await second.pull("work", timeout=0.01)


@every_protocol
@async_test
async def test_discovery_lists_methods(protocol: str) -> None:
    async with hub() as place, at(place, protocol) as peer:
        await peer.register("math.add", add)
        listing = await peer.discover()
        assert [re.sub("[:-]", ".", name.lower()) for name in listing.methods] == ["math.add"]
        # UMQ lists namespaces as routes (UMQ1-x09).
        assert [route[:-1] for route in listing.routes] == ["hub", *(["math"] if protocol == "umq" else [])]
        assert (await peer.discover("Math:add")).doc == "Add two numbers."
        assert "ping" in str(await peer.discover("hub."))
        with pytest.raises((NotExecuted, CallFailed)):
            await peer.discover("math.sub")


account = App()


@account.method("Account:getBalance")
async def get_balance() -> int:
    """Tell the balance."""
    return 7


@every_protocol
@async_test
async def test_namespace_of_an_application_is_discovered(protocol: str) -> None:
    async with hub(app=account) as place, at(place, protocol) as peer:
        below = await peer.discover("Account:" if protocol.startswith("umq") else "account.")
        method_name = "getBalance" if protocol.startswith("umq") else "get_balance"
        assert (below.methods, below.routes, below.doc) == ((method_name,), (), None)
        whole = {"umq": "Account:getBalance", "umq36": "Account.getBalance"}.get(protocol, "")
        listed = await peer.discover()
        assert not whole or whole in listed.methods
        assert protocol != "umq" or listed.routes == ("hub:", "Account:")


@every_protocol
@async_test
async def test_served_application_is_listed_to_umq_peers_in_its_own_spelling(protocol: str) -> None:
    async with hub() as place, at(place, "umq") as peer, at(place, protocol) as server:
        await server.serve(account)
        narrow = protocol not in {"umq", "umq36"}
        assert (await peer.discover()).routes == ("hub:", "account:" if narrow or protocol == "umq36" else "Account:")


@every_protocol
@async_test
async def test_timeout_has_the_same_text_from_hub_and_client(protocol: str) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    async with hub() as place, at(place, protocol) as peer:
        await peer.register("slow", slow)
        with pytest.raises(CallTimeout, match=r"^slow did not answer within 0\.02 s$"):
            await peer.call("slow", timeout=0.02)


@every_protocol
@async_test
async def test_error_hints_at_the_path_of_another_protocol(protocol: str) -> None:
    async with hub() as place:
        for path in ("/umq" if protocol.startswith("lrpm") else "/lrpm", "/nowhere"):
            url = URLS[protocol].replace("hub", f"127.0.0.1:{place.port}{path}")
            with pytest.raises(ConnectionLost, match=f"; a hub serves .*, and the URL says {path}$"):
                await connect(url)


@every_protocol
@async_test
async def test_application_is_served_by_a_client(protocol: str) -> None:
    app = App()
    app.method("math.add")(add)
    async with hub() as place, at(place, protocol, app=app), at(place, "umq") as caller:
        assert await caller.call("math.add", [1, 2]) == 3


@pytest.mark.parametrize("protocol", ["umq", "umq36"])
@async_test
async def test_large_file_passes_through_the_hub(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = bytes(range(256)) * (20 << 12)
    path.write_bytes(data)
    async with hub() as place, at(place, protocol) as caller, at(place, protocol) as callee:
        await callee.register("photo.turn", turn)
        reply = await caller.call_reply("photo.turn", attachments=[path])
        assert list(reply.attachments) == [data[::-1]]


@every_protocol
@async_test
async def test_many_concurrent_calls_all_get_a_result(protocol: str) -> None:
    async with hub() as place, at(place, protocol) as caller, at(place, protocol) as callee:
        await callee.register("math.add", add)
        answers = await asyncio.gather(*[caller.call("math.add", [number, 1]) for number in range(500)])
        assert answers == [number + 1 for number in range(500)]


@async_test
async def test_unreachable_hub_raises_connection_lost() -> None:
    async with hub() as place:
        port = place.port
        with pytest.raises(ConnectionLost, match="404"):
            await connect(f"umq+ws://127.0.0.1:{port}/nowhere")
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        await connect(f"umq+ws://127.0.0.1:{port}")


ALICE = {"token": "t0ken"}
BOB = {"identity": "bob", "secret": "s3cret"}
LOGINS = (
    Identity("alice", token=ALICE["token"], permissions=Permissions(call=("math.*",))),
    Identity("bob", secret=BOB["secret"]),
)


@every_protocol
@async_test
async def test_token_authenticates_and_its_permissions_apply(protocol: str) -> None:
    async with hub() as place:
        place.server.exchange.hub.reload(HubSettings(anonymous="never", identities=LOGINS))
        async with at(place, protocol, **ALICE) as peer:
            await peer.register("math.add", add)
            assert await peer.call("math.add", [2, 3]) == 5
            with pytest.raises(NotExecuted) as caught:
                await peer.call("account.pay")
            assert caught.value.reason is Reason.DENIED


@pytest.mark.parametrize("protocol", EVERY)
@async_test
async def test_wrong_token_raises_refused(protocol: str) -> None:
    async with hub() as place:
        place.server.exchange.hub.reload(HubSettings(anonymous="never", identities=LOGINS))
        with pytest.raises(Refused):
            await at(place, protocol, **{**ALICE, "token": "wrong"})


@pytest.mark.parametrize("protocol", ["lrpm-json", "lrpm-cbor"])
@async_test
async def test_identity_and_secret_authenticate(protocol: str) -> None:
    async with hub() as place:
        place.server.exchange.hub.reload(HubSettings(anonymous="never", identities=LOGINS))
        async with at(place, protocol, **BOB) as peer:
            assert await peer.call("hub.ping") == "pong"
        for login in ({**BOB, "secret": "wrong"}, {**BOB, "identity": "eve"}, {}):
            with pytest.raises(Refused):
                await at(place, protocol, **login)


@pytest.mark.parametrize("protocol", ["umq", "umq36"])
@async_test
async def test_token_as_a_variable_is_sent_again_after_a_reconnect(protocol: str) -> None:
    async with hub() as place:
        place.server.exchange.hub.reload(HubSettings(anonymous="never", identities=LOGINS))
        async with at(place, protocol, backoff=(0.001, 0.01)) as peer:
            with pytest.raises(NotExecuted):
                await peer.register("math.add", add)
            await peer.vars.set("token", "t0ken")
            await peer.register("math.add", add)
            first = peer.session
            ours = peer._core.reconnector.session
            assert ours is not None
            ours._link.abort()
            assert await peer.call("math.add", [2, 3], idempotent=True) == 5
            assert peer.session != first


@every_protocol
@async_test
async def test_clients_reconnect_to_a_restarted_hub(protocol: str) -> None:
    async with hub() as place:
        port = place.port
        async with at(place, protocol, backoff=(0.01, 0.05)) as caller, at(place, protocol) as callee:
            await callee.register("math.add", add)
            events = await caller.subscribe("news")
            await asyncio.sleep(0.05)  # until everything is acknowledged, in protocols that do this
            await place.server.stop()
            async with hub(settings(server=ServerSettings(port=port, drain_timeout=1.0))):
                await wait_for_state(caller, ConnectionState.RECONNECTED)
                await wait_for_state(callee, ConnectionState.RECONNECTED)
                assert await caller.call("math.add", [2, 3]) == 5
                await callee.publish("news", "we are back")
                assert (await anext(events)).data == "we are back"
