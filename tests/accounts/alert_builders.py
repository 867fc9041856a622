"""Nearly exhausted quotas, and the check that writes alerts about them."""

import itertools
from datetime import datetime
from typing import Any

from row_builders import stored_limit
from usage_builders import NOON, store, tokens

from vinery_accounts.alerts import quotas
from vinery_accounts.models import Limit, Project, User

USUAL = (50, 80, 100)
_numbers = itertools.count(1)


def tokens_a_day(project: Project, amount: int = 1000, **more: Any) -> Limit:
    return stored_limit("project", project.pk, amount=amount, **more)


def use(num_tokens: int, project: Project | None = None, at: datetime = NOON) -> None:
    scope = {} if project is None else {"project_id": project.pk}
    store(f"r{next(_numbers)}", started_at=at, **scope, **tokens(num_tokens))


def check(at: datetime = NOON, usual: tuple[int, ...] = USUAL) -> list[int]:
    return [alert.percent for alert in quotas.check_quotas(at, usual, has_email=True)]


def person(name: str, **more: Any) -> User:
    return User.objects.create_user(name, email=f"{name}@example.com", **more)
