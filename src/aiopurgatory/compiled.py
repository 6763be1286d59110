"""Which form runs."""

from .core import awaiter, checks, endings, moments, operation, parking, rules, turns, watchers
from .timer import delay_queue, ring, timer, wheel

_FORMS = {
    not (module.__file__ or ".py").endswith(".py")
    for module in (
        *(awaiter, checks, endings, moments, operation, parking, rules, turns, watchers),
        *(delay_queue, ring, timer, wheel),
    )
}
if len(_FORMS) > 1:
    raise ImportError("aiopurgatory is installed half compiled, half not; remove stale *.so files or install it anew")

#: Whether the timer and the core run compiled (by mypyc) rather than interpreted. Both give the same results.
COMPILED: bool = _FORMS.pop()
