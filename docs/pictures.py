"""python docs/pictures.py: photographs for the docs, by Chromium and its driver.

The live page at work, and the report of the last ``make pipeline``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from contextlib import suppress
from pathlib import Path

import uvicorn
from selenium import webdriver
from starlette.applications import Starlette

from aiopurgatory import Purgatory
from aiopurgatory.web.inspector import Inspector

ASSETS = Path(__file__).parent / "assets"
REPORT = ASSETS.parents[1] / "build" / "pipeline" / "out" / "report.html"
SECONDS, WAITERS = 12, 2_000


async def wait(purgatory: Purgatory, dice: random.Random) -> None:
    """One client after the other: most get an answer, some time out."""
    while True:
        key = ("orders", int(dice.paretovariate(1)) % 100)
        with suppress(TimeoutError):
            await purgatory.wait_for(lambda: dice.random() < 0.3, [key], timeout=dice.uniform(0.5, 30))


async def events(purgatory: Purgatory, dice: random.Random) -> None:
    """A hundred events a second, most of them under few keys."""
    while True:
        purgatory.check_and_complete(("orders", int(dice.paretovariate(1)) % 100))
        await asyncio.sleep(0.01)


def photograph(address: str, name: str, *, after: float = 0.0) -> None:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1000"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options) as browser:
        browser.get(address)
        time.sleep(after)
        browser.save_screenshot(str(ASSETS / name))


async def main() -> None:
    dice = random.Random(18)
    async with Purgatory("orders") as purgatory:
        app = Starlette()
        app.mount("/purgatory", Inspector([purgatory], show_keys=True))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            tasks = [asyncio.create_task(wait(purgatory, dice)) for _ in range(WAITERS)]
            tasks.append(asyncio.create_task(events(purgatory, dice)))
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/purgatory/"
            await asyncio.to_thread(photograph, address, "live-page.png", after=SECONDS)
            for task in tasks:
                task.cancel()
            server.should_exit = True
            await serving


if __name__ == "__main__":
    if not REPORT.exists():
        raise SystemExit(f"{REPORT} is not there: make pipeline makes it")
    photograph(REPORT.as_uri(), "report.png")
    asyncio.run(main())
