"""Connections outside of requests: a failed one is not used again."""

from typing import Any

import pytest
from django.db import OperationalError, connection

from vinery_accounts.base.connections import giving_back


@pytest.mark.django_db(transaction=True)
def test_the_next_work_after_a_failure_has_another_connection() -> None:
    @giving_back
    def fail() -> None:
        connection.ensure_connection()
        broken.append(connection.connection)
        raise OperationalError("the connection is closed")

    broken: list[Any] = []
    with pytest.raises(OperationalError):
        fail()
    assert connection.connection is None
    connection.ensure_connection()
    assert connection.connection is not broken[0]
