"""Makes Django's admin use our site."""

from django.contrib.admin.apps import AdminConfig


class VineryAdminConfig(AdminConfig):
    """Django's own app with another site."""

    default_site = "vinery.admin_site.VineryAdminSite"
