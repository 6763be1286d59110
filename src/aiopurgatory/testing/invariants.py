"""The check of a purgatory's invariants."""

from ..core.kit import core_of
from ..purgatory import Purgatory


def check_invariants(purgatory: Purgatory) -> None:
    """Check the invariants I1, I3, I4, I5, I6, I9 and I13 of *purgatory*. May be called at any time, even in hooks.

    The others of I1 to I15 are about events, not about state. The library's own tests check them.

    Raises: AssertionError: the message names the broken invariant.
    Cost: O(n) in everything that the purgatory holds.
    """
    core_of(purgatory).verify()
