"""Django. It answers exceptions itself, before the middleware, and cancels the view of a client that leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import django
from asgiref.sync import markcoroutinefunction
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from aiopurgatory import PurgatoryClosedError, PurgatoryFullError
from aiopurgatory.web import PurgatoryMiddleware

from . import jobs


async def next_job(request: HttpRequest) -> HttpResponse:
    return HttpResponse(await jobs.next_job())


class Busy:
    async_capable, sync_capable = True, False

    def __init__(self, get_response: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        return await self.get_response(request)

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        is_refusal = isinstance(exc, (PurgatoryClosedError, PurgatoryFullError))
        return HttpResponse(status=503, headers={"Retry-After": "1", "Connection": "close"}) if is_refusal else None


urlpatterns = [path("next", next_job)]
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", LOGGING_CONFIG=None, MIDDLEWARE=[f"{__name__}.Busy"]
)
django.setup()
app = jobs.told(PurgatoryMiddleware(get_asgi_application(), jobs.purgatory))
