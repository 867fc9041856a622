"""Media rules in Django's admin."""

from vinery_accounts.admin.base import register
from vinery_serving.media.tables.resource import ALL

for _resource in ALL.values():
    register(_resource)
