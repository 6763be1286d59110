"""Long polling for web applications. Import the modules by path: ``longpoll``, ``asgi``, ``aiohttp``."""
