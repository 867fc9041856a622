"""What readiness says of a process that serves, but does not follow what is changed."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

from serving.runtime import Runtime
from vinery.health import _of_keys


def keys_read(read_at_s: float) -> tuple[bool, str]:
    check = _of_keys(cast(Runtime, SimpleNamespace(accounts_read_at_s=read_at_s)))
    return check.is_well, check.told


def test_keys_that_are_followed_are_well() -> None:
    assert keys_read(time.time()) == (True, "followed")
    assert keys_read(0.0) == (True, "not read yet")  # of which a start says more


def test_keys_that_have_not_been_read_for_long_are_told() -> None:
    is_well, told = keys_read(time.time() - 95)
    assert not is_well
    assert told.startswith("changes of the last 9")
