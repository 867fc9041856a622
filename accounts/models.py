"""People, keys and usage rows."""

from django.contrib.auth.models import AbstractUser


class User(AbstractUser):
    """A person or a service that owns keys. Ours from the first migration on, because a
    user model cannot be exchanged later."""
