"""The endpoints of apps.py for Django: async views, which Django itself cancels when the client leaves.

Its GZipMiddleware compresses events, but with ?identity.
"""

from __future__ import annotations

import logging
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from .apps import bump, polling, statistics


async def polls(request: HttpRequest, topic: str) -> HttpResponse:
    if request.method == "POST":
        return HttpResponse(bump(topic))
    answer = await polling.answer(topic, request.headers, request.GET)
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)


async def events(request: HttpRequest, topic: str) -> StreamingHttpResponse:
    found = await polling.events(topic, request.headers)
    headers = found.headers | ({"Content-Encoding": "identity"} if "identity" in request.GET else {})
    return StreamingHttpResponse(found, status=found.status, headers=headers)


async def tell(request: HttpRequest) -> HttpResponse:
    return JsonResponse(statistics())


urlpatterns = [path("polls/<str:topic>", polls), path("events/<str:topic>", events), path("statistics", tell)]


def app() -> Any:
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="x",
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            "django.middleware.gzip.GZipMiddleware",
            "django.middleware.common.CommonMiddleware",  # tells the length
        ],
    )
    logging.getLogger("django.request").setLevel(logging.CRITICAL)  # it logs every 503
    django.setup()
    return get_asgi_application()
