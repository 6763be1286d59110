"""The broker's own modules, for tests that look inside."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).parents[2]


def _load(name: str) -> None:
    """Make examples/broker importable as *name*: in a test run, both `examples` and `broker` are folders of tests."""
    folder = ROOT / "examples" / "broker"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


if TYPE_CHECKING:  # mypy has examples/ on its path
    from broker.answers import Values
    from broker.fetches import DelayedFetch, Fetched
    from broker.groups import GroupSettings
    from broker.records import shared
    from broker.replication import Partition, Settings
    from broker.server import Broker, BrokerSettings
    from broker.wire import VERSIONS
else:
    _load("broker_example")
    from broker_example.answers import Values
    from broker_example.fetches import DelayedFetch, Fetched
    from broker_example.groups import GroupSettings
    from broker_example.records import shared
    from broker_example.replication import Partition, Settings
    from broker_example.server import Broker, BrokerSettings
    from broker_example.wire import VERSIONS

__all__ = [
    "ROOT",
    "VERSIONS",
    "Broker",
    "BrokerSettings",
    "DelayedFetch",
    "Fetched",
    "GroupSettings",
    "Partition",
    "Settings",
    "Values",
    "shared",
]
