"""State that survives a kill of the hub besides durable requests: jobs and retained values."""

import asyncio
import time
from pathlib import Path

import pytest

import fiveways
from chaos.hubs import KillableHub
from fiveways.model.store_changes import PutJob, PutPeer, PutRequest
from fiveways.runtime.undecodable_records import check_row
from fiveways.settings.sections import ServerSettings, Settings, StoreSettings
from fiveways.store import store_repair
from fiveways.wire import cbor
from tests.support import raw_peers
from tests.support.hub_process import served
from tests.support.store_helpers import write_and_close


def test_jobs_and_retained_values_survive_a_kill(tmp_path: Path) -> None:
    async def run() -> None:
        hub = KillableHub(tmp_path / "store.db")
        await hub.start()
        url = f"lrpm+ws://127.0.0.1:{hub.port}"
        async with fiveways.connect(url) as peer:
            for number in range(2):
                await peer.push("thumbnails", {"n": number})
            await peer.publish("sensors.roof", 21.5, retain=True)
            async with peer.pull("thumbnails") as job:
                assert job.data == {"n": 0}
            # A push is confirmed when it and all earlier records are on disk; the end of a job is not confirmed.
            await peer.push("thumbnails", {"n": 2})
            assert await peer.call("hub.queues") == {"thumbnails": {"waiting": 2, "given": 0, "dead": 0}}
        await hub.kill()
        await hub.start()
        async with fiveways.connect(url) as peer:
            for number in (1, 2):
                async with peer.pull("thumbnails") as job:
                    assert job.data == {"n": number}
            async with peer.subscribe("sensors.*") as events:
                assert (await anext(events)).data == 21.5
            assert await peer.call("hub.queues") == {}
        assert await hub.stop() == 0

    asyncio.run(run())


def test_store_in_use_is_refused_to_a_second_hub(tmp_path: Path) -> None:
    async def run() -> str:
        first, second = KillableHub(tmp_path / "store.db"), KillableHub(tmp_path / "store.db")
        await first.start()
        try:
            await second.start()
        except AssertionError as exc:
            return str(exc)
        finally:
            assert await first.stop() == 0
        return ""

    assert f"{tmp_path}/store.db is in use: another process has opened this store" in asyncio.run(run())


def test_record_that_cannot_be_decoded_is_named_and_can_be_repaired_away(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    later = time.time() + 1000
    asyncio.run(
        write_and_close(
            path, PutPeer("ab", "", later), PutRequest("ab", "k", b"\xc1", later), PutJob("jobs", 1, b"1", 0)
        )
    )

    async def run() -> None:
        for _ in range(2):
            with pytest.raises(AssertionError) as caught:
                async with served("--set", f"store.path={path}"):
                    pass
            assert str(caught.value).startswith(
                f"fiveways serve: {path} is damaged: the request k of peer ab cannot be decoded ("
            )
        report, _ = store_repair.repair_store(path, check_row)
        assert report.lost == ["table log, line 1 (peer ab, key k)"]
        async with (
            served("--set", f"store.path={path}") as (_, port),
            fiveways.connect(f"lrpm+ws://127.0.0.1:{port}") as peer,
        ):
            assert await peer.call("hub.queues") == {"jobs": {"waiting": 1, "given": 0, "dead": 0}}

    asyncio.run(run())


def test_retained_cbor_value_without_a_json_form_is_refused(
    tmp_path: Path,
) -> None:
    hub_settings = Settings(server=ServerSettings(port=0), store=StoreSettings(path=str(tmp_path / "store.db")))

    def request(kind: int, number: int, name: str, body: bytes, meta: object) -> bytes:
        return b"\x85" + cbor.write(kind) + cbor.write(number) + cbor.write(name) + body + cbor.write(meta)

    async def run() -> None:
        async with raw_peers.hub(hub_settings) as place:
            peer = await place.peer("/lrpm")
            peer.binary(cbor.write([2, None, {}]))
            await peer.data()
            duplicate = b"\xa2\x01\x01\x611\x02"  # {1: 1, "1": 2}
            peer.binary(request(61, 256, "t", duplicate, {"retain": True}))
            answer = cbor.parse(await peer.data())
            assert isinstance(answer, list)
            assert answer[:4] == [20, 61, 256, "hub.err.bad_arguments"]
            work = b"\xa2" + cbor.write("queue") + cbor.write("q") + cbor.write("data") + duplicate
            peer.binary(request(40, 257, "hub.push", work, {}))
            answer = cbor.parse(await peer.data())
            assert isinstance(answer, list)
            assert answer[:4] == [20, 40, 257, "hub.err.bad_arguments"]
            stats = place.server.exchange.hub.stats()
            assert (stats["retained"], stats["queues"]) == (0, {})

    asyncio.run(run())
