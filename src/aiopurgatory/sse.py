"""The text of a server-sent event."""

from __future__ import annotations


def event_text(data: str | bytes, name: str | None = None, event_id: str | None = None) -> bytes:
    """Return an event. Each line of its data is a field, whichever line ends it has.

    Args: name, event_id: have no line ends; None: it has no such field. An empty id has the client resume from none.
    """
    text = data if isinstance(data, bytes) else data.encode(errors="replace")
    lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    fields = ("" if name is None else "event: " + name + "\n") + ("" if event_id is None else "id: " + event_id + "\n")
    return b"%bdata: %b\n\n" % (fields.encode(errors="replace"), lines)
