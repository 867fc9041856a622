"""Backups of a whole installation: one archive with the database, secrets and usage."""


class BackupFailed(Exception):
    """A backup cannot be made or restored. The message gives the reason in one line."""
