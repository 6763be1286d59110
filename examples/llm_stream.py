"""A model's answers, streamed to any number of pages, and resumed after a reload. python examples/llm_stream.py

    cd examples && uvicorn llm_stream:app                                    answers in memory: one worker
    REDIS_URL=redis://127.0.0.1:6379 uvicorn --workers 3 llm_stream:app      in Redis: any worker serves any answer

Open http://127.0.0.1:8000, ask, and reload the page in the middle, or open its address in another tab. As a script, it
asks itself and exits. The model is a fake one: 200 tokens, 20 a second.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from aiopurgatory.streams import EndedError, EventLog, MemoryLog
from aiopurgatory.web import EventRoute

log: EventLog = MemoryLog(name="answers")
if "REDIS_URL" in os.environ:
    from aiopurgatory.streams.redis import RedisLog

    log = RedisLog(os.environ["REDIS_URL"], name="answers")
app = FastAPI(
    lifespan=log.lifespan,
    routes=[
        Route("/answers/{answer}/events", EventRoute(log), methods=["GET"]),
        Mount("/js", StaticFiles(packages=[("aiopurgatory.web", "js")])),  # has events.js
    ],
)
tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps no reference to a task

PAGE = """<!doctype html><title>Ask</title><link rel="icon" href="data:,">
<form><input name="prompt" value="Why?" required> <button>Ask</button> <button type="button">Stop</button></form>
<p id="text" style="white-space: pre-wrap"></p><p id="state"></p><script type="module">
import { events } from "/js/events.js";
const [form, text, state] = ["form", "#text", "#state"].map((name) => document.querySelector(name));
let following = new AbortController();
async function follow() {  // the answer's id is in the page's address: so a reload, or another tab, follows it, too
  following.abort();
  following = new AbortController();
  text.textContent = state.textContent = ""; if (!location.hash) return;
  const url = `/answers/${location.hash.slice(1)}/events`;
  for await (const { name, data } of events(url, { signal: following.signal })) {
    if (name === "token") text.textContent += data;
    else if (name === "gone") text.textContent = "";
    else if (name === "end") state.textContent = data;
  }
}
form.onsubmit = async (event) => {
  event.preventDefault();
  const asked = await fetch("/answers?" + new URLSearchParams(new FormData(form)), { method: "POST" });
  location.hash = await asked.json();
};
form.querySelector("[type=button]").onclick = () => fetch(`/answers/${location.hash.slice(1)}`, { method: "DELETE" });
onhashchange = onpageshow = () => follow().catch((error) => { state.textContent = error.message; });
onpagehide = () => following.abort();  // else a page that is kept for the back button would follow on
</script>"""


async def model(prompt: str) -> AsyncIterator[str]:
    for number in range(1, 201):
        await asyncio.sleep(0.05)
        yield f"{prompt} " if number == 1 else f"{number} "


async def produce(answer: str, prompt: str) -> None:
    with suppress(EndedError):  # it was stopped
        async with log.run(answer) as run:
            async for token in model(prompt):
                await run.append(token, "token")


app.get("/", response_class=HTMLResponse)(lambda: PAGE)


@app.post("/answers", status_code=202)
async def ask(prompt: str) -> str:
    answer = uuid4().hex
    tasks.add(task := asyncio.create_task(produce(answer, prompt)))
    task.add_done_callback(tasks.discard)
    return answer


@app.delete("/answers/{answer}")
async def stop(answer: str) -> None:
    with suppress(EndedError):
        await log.end(answer, "stopped")


async def listen(client: httpx.AsyncClient, answer: str, after: str = "", most: int = 999) -> list[list[str]]:
    """Follow *answer*. Returns: the fields of at most so many events after the id *after*."""
    text = ""
    async with client.stream("GET", f"/answers/{answer}/events", params={"after": after}) as stream:
        async for part in stream.aiter_text():
            text += part
            if text.count("\n\n") >= most:
                break
    events = [event.splitlines() for event in text.split("\n\n") if "\ndata: " in event]
    return [[line for line in event if not line.startswith((":", "retry: "))] for event in events[:most]]


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20.0) as client:
            answer, other = [(await client.post("/answers", params={"prompt": "Why?"})).json() for _ in range(2)]
            first = await listen(client, answer, most=50)
            await client.delete(f"/answers/{other}")
            print(f"a page got {len(first)} tokens, the first one {first[0]}, and is loaded again")
            rest = await listen(client, answer, after=first[-1][1].removeprefix("id: "))
            is_same = await listen(client, answer) == first + rest
            print(f"it got {len(rest) - 1} more, and {rest[-1]}; another page got the same: {is_same}")
            print("the other answer:", (await listen(client, other))[-1])
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
