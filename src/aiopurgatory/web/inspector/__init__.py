"""The live page of a purgatory, to mount in any ASGI app. Needs Starlette: pip install "aiopurgatory[web]" """

from ...arguments import extra

with extra("web"):
    from .app import Inspector

__all__ = ["Inspector"]
