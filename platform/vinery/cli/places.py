"""What `vinery organization` and `vinery project` have in common: rename, switch and remove."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from vinery.cli.shape import (
    Commands,
    refusals,
    say,
    start_django,
)


def add_changes(
    actions: Commands, what: str, find: Callable[[str], Any], *, goes_along: str, holds: str
) -> None:
    """Add `rename`, `activate`, `deactivate` and `remove`. `find` is called when Django is
    started; `goes_along` is what is removed with it, `holds` what it may not have any more."""
    rename = actions.add_parser("rename", help="rename", description=f"Rename {what}.")
    rename.add_argument("name", metavar="NAME", help="its name until now")
    rename.add_argument("new_name", metavar="NEW_NAME", help="its name from now on")
    rename.set_defaults(run=lambda arguments: _rename(arguments, find))
    for name, is_active, help_text in (
        ("deactivate", False, "let its keys open no door"),
        ("activate", True, "let its keys open the door again"),
    ):
        action = actions.add_parser(
            name,
            help=help_text,
            description=f"{help_text.capitalize()}. Servers follow within a second.",
        )
        action.add_argument("name", metavar="NAME", help="its name")
        action.set_defaults(run=_switch_to(find, is_active=is_active))
    gone = actions.add_parser(
        "remove",
        help="remove for good",
        description=f"Remove {what} for good, with its {goes_along}. One that has {holds} stays. "
        "What was used in it stays in the books.",
    )
    gone.add_argument("name", metavar="NAME", help="its name")
    gone.set_defaults(run=lambda arguments: _remove(arguments, find))


def _rename(arguments: argparse.Namespace, find: Callable[[str], Any]) -> int:
    start_django()
    from accounts.services import changes

    with refusals():
        row = changes.change(find(arguments.name), name=arguments.new_name)
    say(f"It is {row} now.")
    return 0


def _remove(arguments: argparse.Namespace, find: Callable[[str], Any]) -> int:
    start_django()
    from accounts.services import changes

    row = find(arguments.name)
    with refusals():
        changes.remove(row)
    say(f"Removed: {row}.")
    return 0


def _switch_to(
    find: Callable[[str], Any], *, is_active: bool
) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        start_django()
        from accounts.services import changes

        row = changes.set_active(find(arguments.name), is_active)
        say(f"{row} is {'active' if is_active else 'deactivated, and so are its keys'}.")
        return 0

    return run
