"""Calls between protocols over real sockets, frame by frame."""

import asyncio

from tests.support.raw_peers import Place, WirePeer, hub


async def umq_callee(place: Place) -> WirePeer:
    """A UMQ peer with the method Account:getBalance."""
    callee = await place.umq()
    callee.text('M1\nhub:register\n{"name":"Account:getBalance","doc":"What is left."}')
    assert await callee.heard() == "R1\nnull"
    return callee


def test_umq_method_is_called_from_lrpm_and_umq36() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, lrpm, umq36 = await umq_callee(place), await place.lrpm(), await place.umq36()
            lrpm.text('[40,300,"account.get_balance",{"user":"alice"},{}]')
            assert await callee.heard() == 'M1\nAccount:getBalance\n{"user":"alice"}'
            callee.text("R1\n12.50")
            assert await lrpm.heard() == "[41,300,12.50,{}]"
            umq36.text('C7:["Account.getBalance","bob"]')
            assert await callee.heard() == "M2\nAccount:getBalance\nbob"
            callee.text("R2\nnothing left")
            assert await umq36.heard() == "R7:nothing left"

    asyncio.run(run())


def test_frames_of_one_read_are_answered_in_order() -> None:
    async def run() -> None:
        async with hub() as place:
            peer = await place.peer("/umq")
            for frame in ("H1.0.0\n", "M1\nhub:echo\none", "M2\nhub:echo\ntwo"):
                peer.text(frame)
            assert (await peer.heard()).startswith("W1.0.0\n")
            assert [await peer.heard(), await peer.heard()] == ["R1\none", "R2\ntwo"]

    asyncio.run(run())


def test_lrpm_uses_cbor_if_the_first_frame_is_cbor() -> None:
    async def run() -> None:
        async with hub() as place:
            peer = await place.peer("/lrpm")
            peer.binary(b"\x83\x02\xf6\xa0")
            assert (await peer.data())[:2] == b"\x83\x02"
            peer.binary(b"\x85\x18\x28\x19\x01\x2c\x68hub.echo\x01\xa0")
            assert await peer.data() == b"\x84\x18\x29\x19\x01\x2c\x01\xa0"

    asyncio.run(run())


def test_call_is_lost_with_its_callee() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, lrpm = await umq_callee(place), await place.lrpm()
            lrpm.text('[40,300,"account.get_balance",null,{}]')
            await callee.heard()
            callee.leave()
            answer = await lrpm.heard()
            assert answer.startswith('[20,40,300,"hub.err.lost"')
            lrpm.text('[40,301,"account.get_balance",null,{}]')
            assert (await lrpm.heard()).startswith('[20,40,301,"hub.err.unavailable"')

    asyncio.run(run())


def test_callee_is_notified_when_its_caller_is_lost() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.lrpm(), await place.umq()
            callee.text('[40,300,"hub.register",{"name":"slow.work"},{}]')
            await callee.heard()
            caller.text("M1\nslow:work\n")
            assert (await callee.heard()).startswith('[40,256,"slow.work"')
            caller.leave()
            assert await callee.heard() == "[21,256,{}]"

    asyncio.run(run())


def test_deadline_is_enforced_and_forwarded() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.lrpm(), await place.lrpm()
            callee.text('[40,300,"hub.register",{"name":"slow.work"},{}]')
            await callee.heard()
            caller.text('[40,300,"slow.work",null,{"timeout":50}]')
            assert await callee.heard() == '[40,256,"slow.work",null,{"timeout":50}]'
            assert (await caller.heard()).startswith('[20,40,300,"hub.err.timeout"')
            assert await callee.heard() == "[21,256,{}]"
            callee.text('[41,256,"too late",{}]')
            caller.text('[40,301,"hub.ping",null,{}]')
            assert (await caller.heard()).startswith("[41,301,")

    asyncio.run(run())


def test_route_receives_all_names_below_it_and_discovery() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.umq(), await place.umq()
            callee.text('M1\nhub:register\n{"name":"Shop:"}')
            received = {await callee.heard(), await callee.heard()}
            assert received == {"R1\nnull", "?1\n"}
            callee.text("R1\nMbuyNow\n")
            caller.text("?5\nShop:")
            assert await callee.heard() == "?2\n"
            callee.text("R2\nMbuyNow\nMsell\n")
            assert await caller.heard() == "R5\nMbuyNow\nMsell\n"
            caller.text("M6\nShop:buyNow\n1")
            assert await callee.heard() == "M3\nbuyNow\n1"

    asyncio.run(run())


def test_callback_is_called_once_across_protocols() -> None:
    async def run() -> None:
        async with hub() as place:
            owner, other = await place.umq(), await place.lrpm()
            owner.text('M1\nhub:callback\n{"id":"mine"}')
            token = (await owner.heard()).removeprefix("R1\n").strip('"')
            other.text(f'[40,300,"callback.{token}","hello",{{}}]')
            assert await owner.heard() == "C1\nmine\nhello"
            owner.text("R1\nthanks")
            assert await other.heard() == '[41,300,"thanks",{}]'
            other.text(f'[40,301,"callback.{token}",null,{{}}]')
            assert (await other.heard()).startswith('[20,40,301,"hub.err.no_such_callback"')

    asyncio.run(run())


def test_variables_are_read_across_protocols() -> None:
    async def run() -> None:
        async with hub() as place:
            umq, lrpm = await place.umq(), await place.lrpm()
            umq.text("Slanguage\ncs")
            umq.text("M1\nhub:get\n" + '{"name":"language"}')
            assert await umq.heard() == "R1\ncs"
            lrpm.text('[40,300,"hub.peers",null,{}]')
            assert "umq" in await lrpm.heard()

    asyncio.run(run())


def test_jobs_are_pushed_and_pulled_across_protocols() -> None:
    async def run() -> None:
        async with hub() as place:
            worker, boss = await place.umq(), await place.lrpm()
            worker.text('M1\nhub:pull\n{"queue":"jobs","callback":"job"}')
            assert await worker.heard() == "R1\nnull"
            boss.text('[40,300,"hub.push",{"queue":"jobs","data":{"n":1}},{}]')
            assert (await boss.heard()).startswith("[41,300,")
            assert await worker.heard() == 'C1\njob\n{"n":1}'

    asyncio.run(run())
