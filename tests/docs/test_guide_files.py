"""The files of the guides are valid for the programs that read them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

FILES = REPOSITORY / "docs" / "guides" / "files"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def run(*command: str | Path) -> str:
    """What the program prints. It must succeed."""
    ended = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@needs("promtool")
def test_prometheus_reads_its_configuration_and_the_alert_rules() -> None:
    assert "15 rules found" in run("promtool", "check", "config", FILES / "prometheus.yml")


@needs("promtool")
def test_an_engine_that_is_not_ready_fires_its_alert_after_five_minutes() -> None:
    assert "SUCCESS" in run(
        "promtool", "test", "rules", Path(__file__).with_name("alert_cases.yaml")
    )


def test_each_alert_has_a_severity_a_summary_and_a_cure() -> None:
    [group] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "cure"}


@needs("caddy")
def test_caddy_reads_the_caddyfile() -> None:
    adapted = run("caddy", "adapt", "--config", FILES / "Caddyfile", "--adapter", "caddyfile")

    assert '"dial":"127.0.0.1:8000"' in adapted


@needs("nginx")
def test_nginx_reads_its_configuration(tmp_path: Path) -> None:
    run("nginx", "-t", "-p", tmp_path, "-c", nginx_configuration(tmp_path, port=8443))


def nginx_configuration(folder: Path, *, port: int) -> Path:
    """The guide's configuration, as a file for an nginx in `folder` with a certificate."""
    certificate = (folder / "fullchain.pem", folder / "privkey.pem")
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=vinery.example", "-out", certificate[0], "-keyout", certificate[1]),
    )
    server = (FILES / "nginx.conf").read_text()
    server = server.replace("/etc/ssl/vinery", str(folder)).replace("443", f"127.0.0.1:{port}")
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


def test_kubernetes_accepts_the_manifest() -> None:
    import kubernetes_validate

    documents = list(yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)

    assert [each["kind"] for each in documents].count("StatefulSet") == 1


def dashboard_expressions() -> Iterator[str]:
    dashboard: dict[str, Any] = json.loads((FILES / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def alert_expressions() -> Iterator[str]:
    [group] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    yield from (rule["expr"] for rule in group["rules"])


def metric_names() -> set[str]:
    """The metrics of the dashboard and the alerts."""
    texts = [*dashboard_expressions(), *alert_expressions()]
    return {name for text in texts for name in re.findall(r"\bvinery_\w+", text)}


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    panels = json.loads((FILES / "grafana.json").read_text())["panels"]
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert all(0 <= x < 24 for x, _ in cells)
