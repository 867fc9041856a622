"""The pages of accounts under `/console/`. The classes of pages name the addresses."""

# ruff: noqa: F401
from vinery_accounts.console import (
    design,
    find,
    invitations,
    keys,
    limits,
    members,
    organization,
    overview,
    playground,
    records,
    requests,
    statements,
    usage,
    users,
)
from vinery_accounts.console.generated import add_generated_pages

add_generated_pages()
