"""The pages of accounts under `/console/`. The classes of pages name the addresses."""

# ruff: noqa: F401
from vinery_accounts.console import (
    connect,
    design,
    find,
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

add_generated_pages()
