"""The commands that follow from resources: every list, and the options of every filter."""

import argparse

import pytest
from django.core.exceptions import ValidationError

from tests.accounts.commands.conftest import Vinery
from tests.accounts.isolation_tenants import fill
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import ModelWeight
from vinery_platform.cli.resource import add_declared

LISTS = (
    *("organization list", "project list", "user list", "key list", "limit list"),
    *("limit quotas", "weight list", "refusals list", "quarantine list", "capture list"),
    *("audit list", "alerts list", "alerts webhooks", "alias list"),
    *("job list", "model list", "model speeds", "media denials"),
)


@pytest.fixture
def rows(db: None) -> None:
    fill("acme", 5_000_001)
    changes.add(ModelWeight(model="tiny-chat"))


@table("command", LISTS)
def test_each_list_prints_its_columns_and_all_of_them_as_json(
    vinery_: Vinery, rows: None, command: str
) -> None:
    words = command.split()
    shown = vinery_(*words)
    assert shown.status == 0, shown.err
    heads, *lines = shown.out.splitlines()
    found = vinery_(*words, "--json").rows
    assert len(found) == len(lines)
    names = {head.lower().replace(" ", "_") for head in heads.split("  ") if head.strip()}
    assert all({name.strip("_") for name in names} <= each.keys() for each in found)


@table(
    "words, message",
    [
        ("user link alice", "alice is a service account"),
        ("alerts retry-webhook 7", "There is no webhook 7"),
        ("job pause 7", "There is no job 7. See: vinery job list"),
        ("alias remove gpt", "There is no alias gpt. See: vinery alias list"),
        ("organization remove acme", "There is no organisation acme. See: vinery organization"),
        ("limit remove x", "There is no limit x. See: vinery limit list"),
    ],
)
def test_an_action_names_the_row_that_is_missing(
    vinery_: Vinery, db: None, words: str, message: str
) -> None:
    vinery_("user", "create", "alice", "--service")
    assert vinery_(*words.split()).refusal.startswith(message)


def test_a_resource_without_commands_of_its_own_gets_them_from_its_declaration(
    db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser(prog="vinery model-weight")
    add_declared(parser)

    def said(words: str) -> str:
        arguments = parser.parse_args(words.split())
        return str(arguments.run(arguments))

    assert said("create --model tiny-chat --output 4") == "tiny-chat is created."
    row = ModelWeight.objects.get()
    assert (row.output, row.cached) == (4, 1)
    assert said(f"change {row.pk} --cached 0.5") == "tiny-chat is changed."
    said("list")
    assert "tiny-chat" in capsys.readouterr().out
    assert said(f"remove {row.pk}") == "Removed: tiny-chat."
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        said("create --model tiny-chat --output -1")
    with pytest.raises(SystemExit):
        said("create --output 4")
    assert "--model" in capsys.readouterr().err
