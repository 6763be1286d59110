"""The broker of examples/broker, the same broker with asyncio.Event, and their load generators."""
