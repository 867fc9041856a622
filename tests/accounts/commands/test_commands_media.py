"""`vinery media`: allow and deny, list, limit, test, and import from OpenVINO Model Server."""

import json
from pathlib import Path

from row_builders import logged, stored_denial

from tests.accounts.commands.conftest import Vinery
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import Project
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule


def test_a_host_is_allowed_listed_denied_and_allowed_again(vinery_: Vinery) -> None:
    allowed = vinery_("media", "allow", "Images.Example.org", "--port", "8443", "--note", "ours")
    assert allowed.out == (
        "images.example.org is allowed for the platform. In force within a second.\n"
    ), allowed.err
    (row,) = vinery_("media", "list", "--json").rows
    assert (row["kind"], row["what"], row["ports"]) == ("host", "images.example.org", [8443])
    assert "images.example.org" in vinery_("media", "list").out

    denied = vinery_("media", "deny", "images.example.org")
    assert denied.out == "images.example.org is no longer allowed for the platform.\n", denied.err
    assert MediaRule.objects.get().is_active is False
    assert logged(target_kind="media_rule") == ["media_rule.create", "media_rule.update"]

    vinery_("media", "allow", "a.example.org", "--type", "image/png", "--type", "image/jpeg")
    vinery_("media", "deny", "a.example.org")

    vinery_("media", "allow", "A.example.org", "--max-bytes", "5", "--scheme", "http")
    rule = MediaRule.objects.get(host="a.example.org")
    assert (rule.is_active, rule.max_bytes, rule.schemes) == (True, 5, ["http"])
    assert rule.content_types == ["image/jpeg", "image/png"]


def test_denying_names_what_still_allows_the_host(vinery_: Vinery) -> None:
    for host in ("a.example.org", "*.example.org"):
        vinery_("media", "allow", host)

    denied = vinery_("media", "deny", "a.example.org", "--remove")

    assert "still allowed by: *.example.org" in denied.out
    assert [rule.host for rule in MediaRule.objects.all()] == ["*.example.org"]


def test_an_organisation_and_a_project_narrow(vinery_: Vinery, search: Project) -> None:
    one = vinery_("media", "allow", "a.example.org", "--organization", "acme")
    two = vinery_("media", "allow", "a.example.org", "--project", "search")

    assert "for acme as far as the platform allows it" in one.out, one.err
    assert "for acme / search as far as the platform allows it" in two.out, two.err
    assert sorted(rule.scope for rule in MediaRule.objects.all()) == ["organization", "project"]
    vinery_("media", "deny", "a.example.org", "--project", "acme/search", "--remove")
    assert MediaRule.objects.get().scope == "organization"


def test_a_folder_is_allowed_without_options_of_hosts(vinery_: Vinery, tmp_path: Path) -> None:
    folder = str(tmp_path.resolve())

    assert vinery_("media", "allow", f"{folder}/", "--max-pixels", "9").status == 0
    assert MediaFolder.objects.get().max_pixels == 9
    wrong = vinery_("media", "allow", folder, "--port", "80").refusal
    assert wrong == "--port is for hosts: leave it out for a folder.\n"
    assert vinery_("media", "deny", folder, "--remove").status == 0
    assert not MediaFolder.objects.exists()


@table(
    "words, text",
    [
        (("allow", "a.example.org", "--network", "10.0.0.1/8"), "10.0.0.1/8 is no network"),
        (("allow", "/none/such"), "There is no folder /none/such on the server."),
        (("allow", "a.example.org", "--project", "none"), "There is no project none"),
        (("deny", "a.example.org"), "There is no rule for a.example.org"),
        (("limit", "many"), "many is no number"),
        (("import",), "There is no --allowed_media_domains"),
    ],
)
def test_what_is_wrong_is_refused(vinery_: Vinery, words: tuple[str, ...], text: str) -> None:
    assert text in vinery_("media", *words).refusal


def test_a_number_of_media_is_set_and_refusals_are_listed(vinery_: Vinery, search: Project) -> None:
    assert vinery_("media", "limit", "4").out == "A request of the platform may have 4 media.\n"
    vinery_("media", "limit", "2", "--project", "search")
    vinery_("media", "limit", "3", "--project", "search")
    assert sorted(each.max_media for each in MediaLimit.objects.all()) == [3, 4]

    assert vinery_("media", "limit", "off").out == "The number is removed.\n"
    assert vinery_("media", "limit", "off").out == "There was no number.\n"

    stored_denial(search)

    assert "https://a.example.org" in vinery_("media", "denials").out
    (row,) = vinery_("media", "denials", "--json").rows
    assert row["why"] == "no rule allows it (platform)"
    assert row["num"] == 3


def test_the_test_shows_what_each_level_decides(vinery_: Vinery, search: Project) -> None:
    changes.add(MediaRule(host="*.example.org"))
    changes.add(MediaRule(host="b.example.org", organization=search.organization))

    result = vinery_("media", "test", "https://a.example.org/x.png", "--project", "search")

    assert result.status == 1
    assert "The media rules of the organisation acme do not allow" in result.out
    url = "https://a.example.org/x"
    body = json.loads(vinery_("media", "test", url, "--project", "search", "--json").out)
    assert body["is_allowed"] is False
    steps = [(step["name"], step["is_ok"]) for step in body["steps"]]
    assert steps == [("rule", True), ("denied", False)]
    wrong = vinery_("media", "test", "https://user:secret@a.example.org/")
    assert wrong.status == 1
    assert "Leave out the user and the password" in wrong.out


def test_the_options_of_openvino_model_server_are_imported(vinery_: Vinery, tmp_path: Path) -> None:
    folder = str(tmp_path.resolve())
    vinery_("media", "allow", "b.example.org", "--max-redirects", "5")

    result = vinery_(
        *("media", "import", "--allowed_media_domains", "A.example.org, b.example.org,"),
        *("--allowed_local_media_path", folder),
    )

    assert result.out == f"Imported: a.example.org, {folder}. 1 existed: b.example.org.\n"
    rules = {rule.host: (rule.schemes, rule.max_redirects) for rule in MediaRule.objects.all()}
    assert rules["a.example.org"] == (["http", "https"], 0)
    assert rules["b.example.org"][1] == 5


@table(
    "text",
    [
        "ovms --rest_port 8000 --allowed_media_domains a.example,b.example "
        "--allowed_local_media_path {folder}\n",
        "exec ovms \\\n  --allowed_media_domains=a.example,b.example \\\n"
        '  --allowed_local_media_path="{folder}"',
        "command:\n  - --allowed_media_domains\n  - a.example,b.example\n"
        '  - "--allowed_local_media_path"\n  - "{folder}"\n',
        'CMD ["ovms", "--allowed_media_domains", "a.example,b.example", '
        '"--allowed_local_media_path", "{folder}"]',
    ],
)
def test_a_command_line_in_a_file_is_imported(vinery_: Vinery, tmp_path: Path, text: str) -> None:
    MediaRule.objects.all().delete()
    MediaFolder.objects.all().delete()
    folder, file = str(tmp_path.resolve()), tmp_path / "start"
    file.write_text(text.replace("{folder}", folder))

    result = vinery_("media", "import", "--file", str(file))

    assert result.out == f"Imported: a.example, b.example, {folder}.\n", result.err
