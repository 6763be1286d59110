"""Amazon SQS, as far as standard queues need it, with any number of workers on Redis.

    export REDIS_URL=redis://127.0.0.1:6379
    cd examples && uvicorn --workers 2 protocols.sqs:app --port 9324

    export AWS_ENDPOINT_URL=http://localhost:9324
    aws sqs send-message --queue-url $AWS_ENDPOINT_URL/jobs --message-body hello
    aws sqs receive-message --queue-url $AWS_ENDPOINT_URL/jobs --wait-time-seconds 20

A message that is received stays, and is hidden for its visibility timeout. A client that has done its work deletes it.
Otherwise another client receives it: so none is lost with a client, or with what was on the wire.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import md5
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aiopurgatory import Purgatory
from aiopurgatory.bus.redis import RedisBus
from aiopurgatory.web import PurgatoryMiddleware, while_connected

# The state: the ids of each queue's messages by the time at which they are visible, their bodies, and how often each
# was received. A receipt handle names a message and that number: it is void when the message is received again.

CLAIM = """local time = redis.call('TIME')
local now, found = time[1] + time[2] / 1e6, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', KEYS[1], now + ARGV[2], id)
  table.insert(found, {id, redis.call('HINCRBY', KEYS[3], id, 1), redis.call('HGET', KEYS[2], id)})
end
return found"""
HIDE = """local time = redis.call('TIME')
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return end
redis.call('ZADD', KEYS[1], 'XX', time[1] + time[2] / 1e6 + ARGV[3], ARGV[1])"""
DELETE = """if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])"""


class Messages:
    redis: Any  # a Redis that decodes: its types cannot tell

    async def run(self, script: str, queue: str, *args: object) -> Any:
        keys = (f"sqs:visible:{queue}", f"sqs:bodies:{queue}", f"sqs:received:{queue}")
        return await self.redis.eval(script, len(keys), *keys, *args)

    async def send(self, queue: str, body: str) -> dict[str, Any]:
        message = str(uuid4())
        await self.redis.hset(f"sqs:bodies:{queue}", message, body)
        await self.redis.zadd(f"sqs:visible:{queue}", {message: 0})
        return {"MessageId": message, "MD5OfMessageBody": md5(body.encode()).hexdigest()}

    async def claim(self, queue: str, most: int, seconds: int) -> list[dict[str, Any]] | None:
        """Hide up to *most* visible messages for *seconds*. Returns: these; None: there are none."""
        found = await self.run(CLAIM, queue, most, seconds)
        return [
            {
                "MessageId": message,
                "ReceiptHandle": f"{message} {count}",
                "Body": body,
                "MD5OfBody": md5(body.encode()).hexdigest(),
            }
            for message, count, body in found
        ] or None


def hide(found: list[dict[str, Any]]) -> None:
    """Leave messages hidden for their timeout: their client left just as it got them."""


# The actions: each gets what the client sends, and returns the answer.

messages = Messages()
purgatory = Purgatory("sqs")


def queue_of(asked: dict[str, Any]) -> str:
    return str(asked["QueueUrl"].rpartition("/")[2])


def tell(request: Request, queue: str) -> None:
    """Call one client to claim a message: one of this worker, or if none waits here, one of each other worker."""
    if purgatory.waiting(queue):
        purgatory.check_and_complete(queue, limit=1)
    else:
        request.app.state.bus.publish(queue, limit=1)


async def create_queue(request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    return {"QueueUrl": f"{request.base_url}{asked['QueueName']}"}


async def send_message(request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    queue = queue_of(asked)
    sent = await messages.send(queue, asked["MessageBody"])
    tell(request, queue)
    return sent


async def receive_message(request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]]
    queue, wait = queue_of(asked), asked.get("WaitTimeSeconds", 0)
    claim = partial(messages.claim, queue, asked.get("MaxNumberOfMessages", 1), asked.get("VisibilityTimeout", 30))
    # Hidden messages become visible without a publish. However many clients wait, about one a second looks for them.
    every = 1.0 + len(purgatory.waiting(queue))
    async with while_connected():
        found = await purgatory.wait_for(claim, [queue], timeout=wait, default=[], every=every, on_undelivered=hide)
    return {"Messages": found}


async def change_message_visibility(request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    queue = queue_of(asked)
    await messages.run(HIDE, queue, *asked["ReceiptHandle"].split(" "), asked["VisibilityTimeout"])
    tell(request, queue)
    return {}


async def delete_message(request: Request, asked: dict[str, Any]) -> dict[str, Any]:
    await messages.run(DELETE, queue_of(asked), *asked["ReceiptHandle"].split(" "))
    return {}


ACTIONS = {
    "CreateQueue": create_queue,
    "GetQueueUrl": create_queue,
    "SendMessage": send_message,
    "ReceiveMessage": receive_message,
    "ChangeMessageVisibility": change_message_visibility,
    "DeleteMessage": delete_message,
}


async def act(request: Request) -> JSONResponse:
    action = ACTIONS[request.headers["x-amz-target"].removeprefix("AmazonSQS.")]
    return JSONResponse(await action(request, await request.json()), media_type="application/x-amz-json-1.0")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    url = os.environ["REDIS_URL"]
    async with (
        RedisBus(url, [purgatory]) as app.state.bus,
        Redis.from_url(url, decode_responses=True) as messages.redis,
    ):
        yield


async def left(request: Request, exc: Exception) -> Response:
    """The client has left before its request was read."""
    return Response(status_code=499)


app = Starlette(
    lifespan=lifespan,
    routes=[Route("/{path:path}", act, methods=["POST"])],
    exception_handlers={ClientDisconnect: left},
)
app.add_middleware(PurgatoryMiddleware, purgatory=purgatory)
