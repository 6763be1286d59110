"""Around the web: long polls (``longpoll``, ``asgi``, ``aiohttp``), and a page of what waits (``inspector``)."""
