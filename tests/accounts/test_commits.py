"""A thread sees whether others have committed, without reading their rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from django.db import connection, transaction

from vinery_accounts.base.commits import commit_state
from vinery_accounts.models import Organization


def in_another_connection(name: str, *, commits: bool = True) -> None:
    def write() -> None:
        with transaction.atomic():
            Organization.objects.create(name=name)
            transaction.set_rollback(not commits)
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()


@pytest.mark.django_db(transaction=True)
def test_the_state_changes_with_each_commit_of_another_connection() -> None:
    states = [commit_state()]
    for name in ("a", "b"):
        in_another_connection(name)
        states.append(commit_state())

    assert len({str(state) for state in states}) == 3


@pytest.mark.django_db(transaction=True)
def test_the_state_is_equal_while_nothing_is_written() -> None:
    # Other tests may write to the same server between two looks.
    assert any(commit_state() == commit_state() for _ in range(1000))


@pytest.mark.django_db(transaction=True)
def test_only_the_state_of_sqlite_belongs_to_its_connection() -> None:
    own, _ = cast("tuple[object, object]", commit_state())
    connection.close()

    is_shared = cast("tuple[object, object]", commit_state())[0] is own
    assert is_shared == (connection.vendor == "postgresql")
