"""The core: a purgatory without an event loop. Its loop, clock and thread are handed in.

**One object is the core of a purgatory** (core): its state, its counters, and the parts wired together. An operation
sees it as its Owner. The methods of Purgatory that need no event loop are entry points to it, compiled (entry_points).

**An operation** is pending until it ends, once, as COMPLETED, EXPIRED, CANCELLED or FAILED. It waits in two places:
under each of its keys (watchers), and in the timer if it has a deadline (deadlines).

**Try, register, try again** (core). watch() tries the operation, registers it under every key, and tries it again.
An event before the registration is seen by the second try; a later one finds the operation under its key. So none is
missed, without a lock, and with two tries for any number of keys.

**The end has two steps** (endings). unlink() is the one change from pending to ended, and takes the operation out of
the timer and of its keys. publish() makes the result known: awaiters, counters, observers. User code runs between the
two (on_complete) and after them, and finds all structures consistent. So a hook may watch, check, end or close
anything. Whoever ends many operations at once unlinks all of them before it publishes one.

**Checks** (checks) try what waits under a key, oldest first. A check from inside a check is queued: chains of any
length neither recurse nor lose a link. A mark asks for a check on the next iterations, in slices; marks of a key are
merged. Checks and marks are numbered in their order. A read that began after a check with some number sees the change
that caused it, so all awaited conditions that this check wakes may share one read.

**Reads** (bell, awaited, stream_wait). What has to be awaited is read by a task. Its operation stays parked
meanwhile: a check does not end it, but rings a bell, and the task reads once more. An awaited condition ends with the
first value; a stream goes on from value to value (``follow()``, event streams, listeners of logs).

**Calls** (calls). A check with a limit calls that many operations, the oldest first, and loses no call: it is answered,
passed on, owed while all are busy, or ends since everybody has looked. What an operation has put back is called anew.

**Due and last read.** An operation whose time is up is DUE, and is tried once more: what came in with the deadline
wins. If that try ends nothing, it expires. An awaited condition answers that try with LAST_READ, and stays pending,
out of the timer, until a last read is done. reschedule() takes both back. A completion at the deadline that no check
led to, and none is on its way to, is MISSED: a call of check_and_complete() is missing somewhere.

**What the invariants hang on.**

I1, I9    nanoseconds rounds deadlines up and the clock down, once; the timer never goes back
I2        deadlines lets the loop read after a stall, before anything expires
I3, I4    ClockAlarm has the one armed call; the sleep follows from the timer alone
I5        unlink() is the only way out of PENDING; counters move in publish()
I6        detach() takes an operation from all lists in O(1) per key (purging has Kafka's other way)
I7        two-step ends; nested checks are queued
I8        Core.work() shares turn_budget among expiry, checks and purging; each stops in the middle and goes on
I10       expire() tries before it ends
I11       attempt() turns the exception of a try into the failure of that operation alone
I12       watchers keep the order of arrival; buckets theirs
I13       close() unlinks all, and alarm.disconnect() cancels the armed call
I14       no awaits here at all; "atomic" marks the writes that a hook must not see half-way
I15       loop.check_thread() and Core.refusal(): a wrong thread, loop or process is told at once

Private means the package: modules here read and write each other's slots where that is clearest. ``kit`` is the door
for everything outside.
"""

from ..timer.slots import fill_slots
from .operation import Operation, OperationSlots

fill_slots(Operation, OperationSlots)
