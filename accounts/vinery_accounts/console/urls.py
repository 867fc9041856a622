"""The pages of accounts under `/console/`. The classes of pages name the addresses."""

from vinery_accounts.console import (
    keys,
    limits,
    members,
    organization,
    overview,
    playground,
    records,
    usage,
)
from vinery_accounts.console.generated import add_generated_pages

__all__ = [
    *("keys", "limits", "members", "organization", "overview", "playground", "records", "usage")
]

add_generated_pages()
