import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import FastAPI, Path
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from aiopurgatory.streams import EndedError, TopicExistsError
from aiopurgatory.streams.redis import RedisLog
from aiopurgatory.web import EventRoute

log = RedisLog("redis://127.0.0.1")
app = FastAPI(
    lifespan=log.lifespan,
    routes=[
        Route("/answers/{answer}/events", EventRoute(log), methods=["GET"]),
        Mount("/js", StaticFiles(packages=[("aiopurgatory.web", "js")])),
    ],
)
tasks: set[asyncio.Task[None]] = set()
# clients send anything: what cannot be a topic is answered 422
Name = Annotated[str, Path(max_length=200, pattern=r"^[^\x00]+$")]


async def model(prompt: str) -> AsyncIterator[str]:  # yours
    for word in prompt.split():
        await asyncio.sleep(0.05)
        yield f"{word} "


async def produce(answer: str, prompt: str) -> None:
    with suppress(TopicExistsError, EndedError):  # asked twice, or ended by another
        async with log.run(answer) as run:
            async for token in model(prompt):
                await run.append(token, "token")


@app.post("/answers/{answer}", status_code=202)
async def ask(answer: Name, prompt: str) -> None:
    task = asyncio.create_task(produce(answer, prompt))
    tasks.add(task)  # asyncio itself keeps no reference
    task.add_done_callback(tasks.discard)
