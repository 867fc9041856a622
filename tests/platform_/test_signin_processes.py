"""Failed sign-ins are counted across processes and restarts."""

from pathlib import Path

import pytest

from tests import prepared_home
from tests.conftest import clean_environment
from tests.platform_ import scripts

_TRY = """
import sys
from vinery.cli.shape import start_django
start_django()
from django.conf import settings
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # which takes no time
from django.test import Client
for _ in range(3):
    page = Client().post(
        "/accounts/login/", {"login": "admin", "password": "wrong"}, headers={"host": "localhost"}
    )
    print("blocked" if "Too many failed" in page.content.decode() else "wrong")
"""


@pytest.mark.stores
def test_wrong_passwords_in_one_process_block_sign_in_in_another(tmp_path: Path) -> None:
    home = prepared_home.copy_to(tmp_path / "home", clean_environment())

    results = [scripts.run_python("-c", _TRY, environment=home) for _ in range(2)]

    assert [each.stdout.split() for each in results] == [
        ["wrong", "wrong", "wrong"],
        ["wrong", "wrong", "blocked"],
    ]
