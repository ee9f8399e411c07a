"""What outlives a hub that is killed, besides accepted requests: work, and values of topics."""

import asyncio
from pathlib import Path

import fiveways
from chaos.hubs import DyingHub


def test_work_and_retained_values_outlive_a_hub_that_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        hub = DyingHub(tmp_path / "store.db")
        await hub.start()
        url = f"lrpm+ws://127.0.0.1:{hub.port}"
        async with fiveways.connect(url) as peer:
            for number in range(2):
                await peer.push("thumbnails", {"n": number})
            await peer.publish("sensors.roof", 21.5, retain=True)
            async with peer.pull("thumbnails") as job:
                assert job.data == {"n": 0}
            # Who pushed is told when it is on disk, and all before it; nobody is told that of work which is done.
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


def test_a_second_hub_is_refused_the_store_of_the_first(tmp_path: Path) -> None:
    async def run() -> str:
        first, second = DyingHub(tmp_path / "store.db"), DyingHub(tmp_path / "store.db")
        await first.start()
        try:
            await second.start()
        except AssertionError as exc:
            return str(exc)
        finally:
            assert await first.stop() == 0
        return ""

    assert asyncio.run(run()) == "the hub did not start"
