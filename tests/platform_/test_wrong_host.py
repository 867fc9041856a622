"""A host name that the server does not accept, in the browser."""

from __future__ import annotations

import pytest
from django.test import Client


@pytest.mark.parametrize("path", ["/", "/console/", "/accounts/login/", "/admin/login/"])
def test_a_page_under_an_unknown_host_name_names_the_settings(
    path: str, client: Client, db: None
) -> None:
    response = client.get(path, headers={"host": "vinery.example"})

    assert response.status_code == 400
    page = response.content.decode()
    assert "VINERY_PUBLIC_URL" in page
    assert "VINERY_ALLOWED_HOSTS" in page
    assert response["Content-Security-Policy"]
