"""The pages of accounts under `/console/`. The classes of pages name the addresses."""

from importlib import import_module
from pkgutil import iter_modules

from vinery_accounts import console
from vinery_accounts.console.rows import add_generated_pages

for each in iter_modules(console.__path__, f"{console.__name__}."):
    import_module(each.name)
add_generated_pages()
