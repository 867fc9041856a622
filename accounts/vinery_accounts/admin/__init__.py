"""Django's admin. Django finds the classes through this import."""

from vinery_accounts.admin import keys, people, records, settings

__all__ = ["keys", "people", "records", "settings"]
