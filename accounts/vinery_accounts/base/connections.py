"""Connections to the database outside of requests, where Django closes none."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import close_old_connections, connections

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


def giving_back(work: Callable[ParametersT, ResultT]) -> Callable[ParametersT, ResultT]:
    """The same work of a thread, which gives the thread's connection back at the end. After a
    failure the connection is closed without a question to the server: the thread would otherwise
    meet the dead connection again at its next work, which may be minutes later."""

    @functools.wraps(work)
    def run(*args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        try:
            return work(*args, **kwargs)
        except DATABASE_UNAVAILABLE:
            connections.close_all()
            raise
        finally:
            close_old_connections()

    return run
