"""The guides: their files are valid, links lead somewhere, commands exist, and the site has all."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.docs.markdown import DOCUMENTS, GUIDES, anchors, commands, links
from tests.tables import table
from vinery_platform.cli.commands import COMMANDS, parser
from vinery_platform.config.setting_table import SETTINGS
from vinery_serving.engine.options import option_documents

FILES = REPOSITORY / "docs" / "guides" / "files"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def run(*command: str | Path) -> str:
    """What the program prints. It must succeed."""
    ended = subprocess.run(
        [*map(str, command)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@needs("promtool")
def test_prometheus_reads_its_files_and_an_engine_that_is_not_ready_fires_its_alert() -> None:
    assert "15 rules found" in run("promtool", "check", "config", FILES / "prometheus.yml")

    assert "SUCCESS" in run(
        "promtool", "test", "rules", Path(__file__).with_name("alert_cases.yaml")
    )


def nginx_configuration(folder: Path, *, port: int) -> Path:
    """The guide's configuration, as a file for an nginx in `folder` with a certificate."""
    certificate = (folder / "fullchain.pem", folder / "privkey.pem")
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=vinery.example", "-out", certificate[0], "-keyout", certificate[1]),
    )
    server = (FILES / "nginx.conf").read_text()
    server = server.replace("443", f"127.0.0.1:{port}").replace("/etc/ssl/vinery", str(folder))
    path = folder / "nginx.conf"
    temporary = "".join(
        f"{name}_temp_path {folder};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{server}}}\n"
    )
    return path


@needs("systemd-analyze")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "vinery.service"
    text = (FILES / "vinery.service").read_text()
    unit.write_text(text.replace("/opt/vinery/bin/vinery", shutil.which("true") or "/bin/true"))

    assert run("systemd-analyze", "verify", unit) == ""
    # It fails above an exposure of 3.0, and the devices of GPUs are in it.
    run("systemd-analyze", "security", "--offline=true", "--threshold=30", unit)
    assert {"DeviceAllow=char-drm rw", "DeviceAllow=char-accel rw"} <= set(text.splitlines())
    filters = re.findall(r"^SystemCallFilter=(.*)$", text, re.M)
    assert {"seccomp", "landlock_restrict_self"} <= set(" ".join(filters).split())


def test_kubernetes_accepts_the_manifests() -> None:
    for name in ("kubernetes.yaml", "kubernetes-hosts.yaml"):
        documents = list(yaml.safe_load_all((FILES / name).read_text()))
        for document in documents:
            if document["apiVersion"] != "ray.io/v1":
                kubernetes_validate.validate(document, "1.31", strict=True)

        assert [each["kind"] for each in documents].count("StatefulSet") == 1


def test_the_hosts_of_kubernetes_and_the_head_of_ray_agree() -> None:
    documents = yaml.safe_load_all((FILES / "kubernetes-hosts.yaml").read_text())
    rows = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    assert {each["metadata"].get("namespace", "vinery") for each in rows.values()} == {"vinery"}
    settings = rows["ConfigMap", "vinery"]["data"] | rows["Secret", "vinery"]["stringData"]
    assert settings.keys() <= {each.name for each in SETTINGS} | {
        *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "VINERY_KEY_PEPPER_1")
    }
    ray = rows["RayCluster", "vinery-ray"]
    assert settings["RAY_ADDRESS"] == f"{ray['metadata']['name']}-head-svc:6379"

    # No schema of KubeRay's RayCluster is published as a package.
    spec = ray["spec"]
    head = spec["headGroupSpec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "head"}, **head["template"]}
    kubernetes_validate.validate(pod, "1.31", strict=True)
    [container] = head["template"]["spec"]["containers"]
    host = rows["StatefulSet", "vinery"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == host["image"]
    assert {each["name"] for each in container["env"]} == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
    requirement = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    [ray_package] = requirement["project"]["optional-dependencies"]["cluster"]
    assert ray_package.startswith("ray>=2.60"), spec["rayVersion"]


def metric_names() -> set[str]:
    """The metrics of the dashboard and the alerts."""
    panels = json.loads((FILES / "grafana.json").read_text())["panels"]
    [group] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    asking = [*(target for panel in panels for target in panel.get("targets", ())), *group["rules"]]
    return {name for each in asking for name in re.findall(r"\b(?:vinery_|vllm:)\w+", each["expr"])}


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
def test_every_command_has_its_options(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(document):
        name = next((word for word in words if not word.startswith("-")), "")
        try:
            parser(*({name} & COMMANDS.keys())).parse_args(words)
        except SystemExit as end:
            assert not end.code, f"vinery {' '.join(words)}: {capsys.readouterr().err}"


def test_the_site_and_the_readme_have_every_guide_and_navigation_no_page_twice() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    index = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    for guide in GUIDES:
        assert f"guides/{guide.name}" in CONFIGURATION
        assert f"guides/{guide.name}" in index
        assert f"docs/guides/{guide.name}" in readme
    found = {words[0] for guide in GUIDES for words in commands(guide) if words}
    assert {"up", "model", "key", "limit", "usage"} <= found

    listed = re.findall(r"[\w/-]+\.md", str(yaml.safe_load(CONFIGURATION)["nav"]))
    assert len(listed) == len(set(listed)) > len(GUIDES)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet")
    run(*command, "--site-dir", tmp_path)

    assert (tmp_path / "guides" / "deployment" / "index.html").is_file()
    pages = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")]
    assert not [page for page in pages if "fonts.googleapis.com" in page]


def test_every_setting_has_a_row() -> None:
    text = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    fields = (REPOSITORY / "docs" / "parameters.md").read_text(encoding="utf-8")
    names = {setting.name for setting in SETTINGS}
    assert {name for name in names if f"`{name}`" not in text + fields} == set()


@table("system", ["openvino-model-server", "fastdeploy-and-vllm"])
def test_the_guide_from_another_system_names_options_that_exist(system: str) -> None:
    text = (REPOSITORY / f"docs/guides/from-{system}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--option '?(\w+)=", text))
    assert len(named) > 8
    assert named - {option.name for option in option_documents()} == set()


def test_troubleshooting_quotes_real_messages_and_names_codes_that_exist() -> None:
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

    errors = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", _section("Errors that clients see"), re.M)
    named = {(status, code) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    known = set(re.findall(r"^\| (\d+) \| `\w+` \| `(\w+)` \|", errors, re.M))
    assert len(named) > 12
    assert named - known == set()


def _section(heading: str) -> str:
    text = (REPOSITORY / "docs/guides/troubleshooting.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]
