"""Follow rooms with matrix-nio, as a user of its own: python watch_matrix.py URL ROOMS... Prints "room value"."""

from __future__ import annotations

import asyncio
import os
import sys

import aiohttp
import nio


async def main(url: str, rooms: list[str]) -> None:
    user = f"@watcher-{os.getpid()}:localhost"
    client = nio.AsyncClient(url, user, config=nio.AsyncClientConfig(max_timeouts=0, backoff_factor=0.1))
    client.access_token = user

    async def show(room: nio.MatrixRoom, event: nio.RoomMessageText) -> None:
        print(f"{room.room_id} {event.body}\n", end="", flush=True)

    client.add_event_callback(show, nio.RoomMessageText)
    for room in rooms:
        assert isinstance(await client.join(room), nio.JoinResponse)
    await client.sync(timeout=0)
    for room in rooms:
        print(f"{room} ready\n", end="", flush=True)
    while True:
        try:
            found = await client.sync(timeout=2000)
        except aiohttp.ClientError:  # the server restarts
            found = nio.SyncError("")
        if isinstance(found, nio.SyncError):
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
