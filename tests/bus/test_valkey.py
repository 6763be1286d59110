"""The short tests of the engines against Valkey, where valkey-server is installed: RedisBus is also its bus."""

from __future__ import annotations

import pytest
from private_servers import program

from .conftest import fixture_of
from .servers import Valkey
from .test_engines import (  # noqa: F401
    test_fault_of_the_network_is_a_gap_in_time,
    test_hear_foreign_publishers_and_hostile_lines,
    test_publish_many_keys_all_arrive_once,
    test_publish_real_server_reaches_the_other_bus,
    test_start_no_password_says_what_to_do,
    test_start_wrong_address_says_what_to_do,
)
from .test_processes import (  # noqa: F401
    test_publish_in_one_process_wakes_the_other,
    test_server_killed_and_restarted_wakes_all,
)
from .test_publishing import test_event_during_the_subscription_wakes  # noqa: F401

if program(*Valkey.programs) is None:
    why = "buses on Valkey were not tested: valkey-server is not on the PATH, and Debian 12 has no package of it"
    pytest.skip(why, allow_module_level=True)


server, own_server = fixture_of(Valkey), fixture_of(Valkey, scope="function")
