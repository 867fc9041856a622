"""A project whose media have rules."""

import pytest

from vinery_accounts.access import changes
from vinery_accounts.models import Organization, Project


@pytest.fixture
def project(db: None) -> Project:
    organization = changes.add(Organization(name="ours"))
    return changes.add(Project(organization=organization, name="one"))
