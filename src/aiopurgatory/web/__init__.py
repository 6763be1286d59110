"""HTTP: long polls (``longpoll``, ``asgi``, ``aiohttp``), and a live page of a purgatory (``inspector``)."""
