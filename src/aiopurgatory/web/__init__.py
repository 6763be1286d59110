"""Long polls and server-sent events over HTTP: routes for any ASGI app, or answers for your own handlers.

The module ``aiohttp`` supports aiohttp apps; ``inspector`` is the live page of a purgatory. How it works inside:

**A poll, from request to answer.** A route (route) reads an ASGI request by the functions that its app passed, and a
handler of your own names the same by arguments (poll). Both make a PollRequest (request): the resource, what the client
has, how long it waits, and who it is. The desk (desk) gives it a place: it starts the purgatory with the first client
of a loop, refuses beyond the limits of the Policy, and ends the older poll of the same client. The content answers: the
states of a source (source) or the events of a log (event_log). Either has a feed: what is new for this client. If there
is something, the poll gets it at once. Otherwise it parks an operation (poll), and reads its feed when that has ended:
so the body covers events in between. Each end is an Answer (answer): news, nothing new, or an exception that stands for
a refusal.

**A stream** (stream) reads the same feed to its end: a poll is answered with the first item, and a stream sends each.
It is one operation all along, in which its task waits again and again.

**What is shared.** Plain sources are read by each poll, and bodies in memory are kept for others that want the same.
Awaited sources are called once for all polls that a check has woken (reads): a call serves those for whom it began late
enough to have seen their change. So every source is called in an empty context, and never sees who asked.

**Who ends a wait.** News: whoever changes a state calls notify(), after a linger if the policy has one (polling). Time:
the client's wait, less a margin and jitter. The client: servers cancel no handler when it leaves, and say so only by
receive(). So a listener calls that, soon after the poll was parked (connected, desk). In handlers of your own,
while_connected() does the same for any await (connected). What is received meanwhile is dropped, unless the app has the
middleware (middleware, aiohttp), which keeps it for the app. The server: servers tell an app only when all handlers
have ended. So stop signals close the purgatory (signals), which answers everybody.

**What may fail.** Clients send anything: what they name is bounded, parsed in linear time, and never becomes a header,
a field or a line of a log as it is. A source that fails is an outage: its clients are answered 503, and it is logged
once a minute. Whatever a handler raises goes to the app, but for refusals, which the middleware answers.
"""

from .answer import Answer, DisconnectedError
from .connected import while_connected
from .desk import Policy
from .middleware import PurgatoryMiddleware
from .polling import LogPolling, LongPolling, LongPollStatistics
from .request import RequestScope
from .route import EventRoute, LongPollRoute
from .signals import close_on_stop
from .source import Source
from .stream import EventAnswer

__all__ = [
    "Answer",
    "DisconnectedError",
    "EventAnswer",
    "EventRoute",
    "LogPolling",
    "LongPollRoute",
    "LongPollStatistics",
    "LongPolling",
    "Policy",
    "PurgatoryMiddleware",
    "RequestScope",
    "Source",
    "close_on_stop",
    "while_connected",
]
