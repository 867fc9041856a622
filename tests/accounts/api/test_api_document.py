"""The OpenAPI document of the management API."""

from typing import Any

import pytest
import yaml
from api_client import Api
from django.core.management import call_command


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the document that the command writes. The command fails for a warning."""
    file = tmp_path_factory.mktemp("openapi") / "schema.yml"
    call_command("spectacular", "--fail-on-warn", "--validate", "--file", str(file))
    return yaml.safe_load(file.read_text())


def test_the_document_that_the_server_returns_describes_each_operation(document: Any) -> None:
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) > 40
    for path, method, operation in operations:
        assert path.startswith("/api/")
        assert operation["summary"], (path, method)
        assert len(operation["description"]) > 20, (path, method)
        assert "default" in operation["responses"]
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (path, method, parameter)

    for name in ("keys", "media-rules", "media-folders", "media-limits", "media-denials"):
        assert f"/api/{name}/" in document["paths"]
    rule = document["components"]["schemas"]["MediaRule"]["properties"]
    assert rule["host"]["description"]

    references = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }
    bodies = [document["components"]["schemas"][each.rpartition("/")[2]] for each in references]

    assert len(bodies) > 10
    assert all(body["additionalProperties"] is False for body in bodies)

    response = Api().client.get("/api/schema/", headers={"accept": "application/json"})
    assert response.status_code == 200
    assert set(response.json()["paths"]) == set(document["paths"])
