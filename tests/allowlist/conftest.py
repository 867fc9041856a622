"""A project whose media have rules."""

import pytest

from vinery_accounts.models import Organization, Project
from vinery_accounts.services import changes


@pytest.fixture
def project(db: None) -> Project:
    organization = changes.add(Organization(name="ours"))
    return changes.add(Project(organization=organization, name="one"))
