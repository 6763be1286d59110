"""The live page of a purgatory, to mount in any ASGI app. Needs Starlette: pip install "aiopurgatory[web]" """

try:
    import starlette as _starlette  # noqa: F401
except ImportError as exc:
    raise ImportError('the inspector needs Starlette: pip install "aiopurgatory[web]"') from exc

from .app import Inspector

__all__ = ["Inspector"]
