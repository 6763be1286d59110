"""Get updates with python-telegram-bot, a bot for each token: python watch_telegram.py URL TOKENS...

Prints "token value" for each update.
"""

from __future__ import annotations

import asyncio
import sys

import telegram


async def watch(url: str, token: str) -> None:
    offset = 0
    async with telegram.Bot(token, base_url=f"{url}/bot") as bot:
        print(f"{token} ready\n", end="", flush=True)
        while True:
            try:
                updates = await bot.get_updates(offset=offset, timeout=2)
            except telegram.error.TelegramError:  # the server restarts
                await asyncio.sleep(0.1)
                continue
            for update in updates[:1]:  # the next poll confirms it alone
                assert update.message is not None
                print(f"{token} {update.message.text}\n", end="", flush=True)
                offset = update.update_id + 1


async def main(url: str, tokens: list[str]) -> None:
    await asyncio.gather(*[watch(url, token) for token in tokens])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
