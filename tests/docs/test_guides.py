"""The guides: their links lead somewhere, their commands exist, and the site has all of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.markdown import DOCUMENTS, GUIDES, anchors, commands, links
from tests.tables import table
from vinery.cli.commands import COMMANDS, parser
from vinery.config.setting_table import SETTINGS
from vinery_serving.engine.option_parsing import option_documents

CONFIGURATION = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")


@table("document", DOCUMENTS)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document

        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@table("document", [each for each in DOCUMENTS if each.name != "ARCHITECTURE.md"])
def test_every_command_exists_with_its_options(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in commands(document):
        name = next((word for word in words if not word.startswith("-")), "")
        try:
            parser(*({name} & COMMANDS.keys())).parse_args(words)
        except SystemExit as end:
            assert not end.code, f"vinery {' '.join(words)}: {capsys.readouterr().err}"


def test_the_site_and_the_readme_have_every_guide() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    index = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    for guide in GUIDES:
        assert f"guides/{guide.name}" in CONFIGURATION
        assert f"guides/{guide.name}" in index
        assert f"docs/guides/{guide.name}" in readme
    found = {words[0] for guide in GUIDES for words in commands(guide) if words}
    assert {"up", "model", "key", "limit", "usage"} <= found


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet")
    built = subprocess.run(
        [*command, "--site-dir", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    assert (tmp_path / "guides" / "deployment" / "index.html").is_file()
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")]
    assert not [page for page in pages if "fonts.googleapis.com" in page]


def test_every_setting_has_a_row() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    fields = (REPOSITORY / "docs" / "parameters.md").read_text(encoding="utf-8")
    names = {setting.name for setting in SETTINGS}

    assert {name for name in names if f"`{name}`" not in text + fields} == set()


def test_the_guide_from_openvino_model_server_names_options_that_exist() -> None:
    text = (REPOSITORY / "docs/guides/from-openvino-model-server.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--option '?(\w+)=", text))

    assert len(named) > 8
    assert named - {option.name for option in option_documents()} == set()


def test_troubleshooting_quotes_real_messages() -> None:
    """`...` is for what varies. Messages may stand in several literals, one below the other."""
    section = _section("A model does not load")
    quoted = [
        part.strip(" .:")
        for row in re.findall(r"^\| (.+?) \|", section, re.M)[2:]
        for part in row.split("...")
        if len(part) > 8
    ]
    sources = (REPOSITORY / "serving").rglob("*.py")
    code = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    text = re.sub(r'"\s+f?"', "", code)

    assert len(quoted) > 10
    assert [part for part in quoted if part not in text] == []


def test_troubleshooting_names_codes_that_exist() -> None:
    errors = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", _section("Errors that clients see"), re.M)
    named = {(status, code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    known = set(re.findall(r"^\| (\d+) \| `\w+` \| `(\w+)` \|", errors, re.M))

    assert len(named) > 12
    assert named - known == set()


def _section(heading: str) -> str:
    text = (REPOSITORY / "docs/guides/troubleshooting.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_navigation_has_no_page_twice() -> None:
    pages = yaml.safe_load(CONFIGURATION)["nav"]
    listed = [page for section in pages for page in _paths(section)]

    assert len(listed) == len(set(listed))


def _paths(section: object) -> list[str]:
    match section:
        case str():
            return [section]
        case dict():
            return [path for each in section.values() for path in _paths(each)]
        case list():
            return [path for each in section for path in _paths(each)]
    return []
