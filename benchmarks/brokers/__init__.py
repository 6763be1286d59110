"""The broker of examples/broker, the same broker with asyncio.Event, and what loads them."""
