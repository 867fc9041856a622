"""The first administrator and the first key of a new installation."""

from django.db import transaction

from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, User


@transaction.atomic
def ensure_first_admin(username: str = "admin") -> tuple[User, str | None]:
    """A superuser, and the password if this call created the superuser.

    If superusers exist, returns the oldest active one, or else the oldest, and None. If an ordinary
    user has the name, the new superuser's name gets a number.
    """
    oldest = User.objects.filter(is_superuser=True).order_by("-is_active", "id").first()
    if oldest is not None:
        return oldest, None
    password = changes.new_password()
    admin = User(username=_free_name(username), is_superuser=True, is_staff=True)
    admin.set_password(password)
    return changes.add(admin), password


@transaction.atomic
def ensure_first_key(owner: User) -> str | None:
    if ApiKey.objects.exists():
        return None
    return create_key(owner=owner, name="first key").secret


def _free_name(username: str) -> str:
    names = User.objects.filter(username__istartswith=username).values_list("username", flat=True)
    taken = {name.lower() for name in names}
    numbered = (f"{username}{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (username, *numbered) if name.lower() not in taken)
