"""Usage, refusals and requests in quarantine by command."""

import json

from django.utils import timezone
from row_builders import stored_quarantined, stored_refusal
from usage_builders import store

from tests.accounts.commands.conftest import Vinery, created_key
from vinery_accounts.models import AuditEntry, Project, QuarantinedRequest, User

DIGEST, OTHER = "a" * 32, "b" * 32


def test_usage_is_filtered_by_names_and_by_ids(vinery_: Vinery, search: Project) -> None:
    alice, key, acme = User.objects.get(username="alice"), created_key(vinery_), search.organization
    owners = {"user_id": alice.pk, "key_id": key.pk, "project_id": search.pk}
    owners["organization_id"] = acme.pk
    now = timezone.now()
    for request_id, more in (("hers", owners), ("gone", {"user_id": 4711})):
        store(request_id, started_at=now, **more)
        stored_refusal(request_id, limit_id=1, **more)

    def exported(*words: str) -> list[str]:
        lines = vinery_("usage", "export", "--format", "jsonl", *words).out.splitlines()
        return [json.loads(line)["request_id"] for line in lines]

    for words in (
        ("--user", "alice"),
        ("--key", key.hint),
        ("--project", "acme/search"),
        ("--organization", "acme"),
    ):
        rows = vinery_("refusals", "list", "--json", *words).rows
        assert exported(*words) == [row["request_id"] for row in rows] == ["hers"]
    assert exported("--user", "4711") == ["gone"]
    for command in (("usage", "show"), ("usage", "export"), ("refusals", "list")):
        refusal = vinery_(*command, "--user", "zoe").refusal
        assert refusal == "There is no user zoe. See: vinery user list\n"
    refusal = vinery_("usage", "show", "--outcome", "fine").refusal
    assert "There is no outcome fine. There are: ok, " in refusal


def test_usage_is_shown_by_end_user_and_of_one(vinery_: Vinery) -> None:
    now = timezone.now()
    for name, end_user in {"a": "ann", "b": "ann", "c": "ben", "d": ""}.items():
        store(name, started_at=now, end_user=end_user)
    heads, *rows = vinery_("usage", "show", "--by", "end-user").out.splitlines()
    assert heads.split()[:2] == ["END-USER", "REQUESTS"]
    assert [row.split()[:2] for row in rows] == [["ann", "2"], ["-", "1"], ["ben", "1"]]
    lines = vinery_("usage", "show", "--end-user", "ann", "--by", "model").out.splitlines()
    assert lines[-1].split()[:2] == ["reference-chat", "2"]
    assert vinery_("usage", "export", "--end-user", "ben").out.count("\n") == 2


def test_media_have_columns_where_there_are_some(vinery_: Vinery) -> None:
    now = timezone.now()
    store("a", started_at=now)
    heads = vinery_("usage", "show").out.splitlines()[0]
    assert "IMAGE" not in heads and "MEDIA" not in heads

    store("b", started_at=now, num_image_tokens=1234, num_media=56)

    for words in ((), ("--by", "model")):
        heads, *_, row = vinery_("usage", "show", *words).out.splitlines()
        assert "IMAGE" in heads and "MEDIA" in heads
        assert "PIXELS" not in heads
        assert "1,234" in row and "56" in row


def test_requests_are_listed_and_released(vinery_: Vinery) -> None:
    stored_quarantined(DIGEST, username="alice", key_id=12, key_name="laptop")
    stored_quarantined(OTHER, model="other")

    heads, *lines = vinery_("quarantine", "list").out.splitlines()
    assert heads.split() == [
        *("SINCE", "DIGEST", "MODEL", "USER", "KEY", "PROJECT", "REQUEST", "ID", "EXPIRES")
    ]
    assert len(lines) == 2
    (row,) = vinery_("quarantine", "list", "--model", "tiny-chat", "--json").rows
    assert (row["digest"], row["user"], row["key"]) == (DIGEST, "alice", "laptop")

    result = vinery_("quarantine", "release", DIGEST)

    assert (result.status, result.out) == (0, f"{DIGEST} is released.\n")
    assert [each.digest for each in QuarantinedRequest.stored.all()] == [OTHER]
    entry = AuditEntry.objects.get(action="quarantine.release")
    assert entry.actor.startswith("command line (")
    refusal = vinery_("quarantine", "release", DIGEST).refusal
    assert refusal.startswith(f"There is no quarantined request {DIGEST}.")
