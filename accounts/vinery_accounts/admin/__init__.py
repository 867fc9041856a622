"""Django's admin. Django finds the pages through this import."""

from vinery_accounts.admin.base import register
from vinery_accounts.resources.base import registered

# Users have a page of their own, quotas are limits, and users answer invitations in the console.
for _path, _resource in registered().items():
    if _path not in ("users", "quotas", "invitations"):
        register(_resource)
