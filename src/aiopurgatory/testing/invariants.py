"""The check of everything a purgatory promises itself."""

from ..core.purgatory import parts_of
from ..purgatory import Purgatory


def check_invariants(purgatory: Purgatory) -> None:
    """Check every structure of *purgatory* against every other. Legal at any point, inside hooks, too.

    The others of the invariants I1 to I15 are about what happens, not about what is there: the tests hold those.

    Raises: AssertionError: names the invariant that does not hold: I1, I3, I4, I5, I6, I9 or I13.
    Cost: a walk over everything.
    """
    parts_of(purgatory).verify()
