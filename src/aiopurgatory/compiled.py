"""Which form of the library runs: compiled or interpreted."""

import sys

from .core import core

# An enum, and code for the interpreted form alone. Everything else in the two layers is compiled, or nothing is.
_INTERPRETED = ("aiopurgatory.core.outcome", "aiopurgatory.timer.slots")
_FORMS = {
    not str(module.__file__).endswith(".py")
    for name, module in sys.modules.items()
    if name.startswith(("aiopurgatory.timer.", "aiopurgatory.core.")) and name not in _INTERPRETED
}
if len(_FORMS) > 1:
    raise ImportError("aiopurgatory is partly compiled, partly interpreted; remove stale *.so files or reinstall it")

#: Whether the timer and the core run compiled (by mypyc) rather than interpreted. Both give the same results.
COMPILED: bool = not str(core.__file__).endswith(".py")
