"""Falcon. It answers exceptions itself, before the middleware."""

from __future__ import annotations

from typing import Any

import falcon.asgi

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import DisconnectedError, PurgatoryMiddleware, while_connected

from . import jobs


class Next:
    async def on_get(self, request: Any, response: Any) -> None:
        async with while_connected():
            response.text = await jobs.next_job()


async def busy(request: Any, response: Any, exc: Exception, params: Any) -> None:
    raise falcon.HTTPServiceUnavailable(headers={"Connection": "close"}, retry_after=1)


falcon_app: Any = falcon.asgi.App()
falcon_app.add_error_handler((PurgatoryClosedError, PurgatoryFullError, DisconnectedError), busy)
falcon_app.add_route("/next", Next())
app = jobs.told(PurgatoryMiddleware(falcon_app, jobs.purgatory))
