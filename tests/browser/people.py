"""An administrator of the sign-in tests alone, created and deleted inside the platform's Django:
`python -m tests.browser.people create NAME PASSWORD`, or `delete NAME`."""

import sys

from vinery.cli.shape import start_django


def main(action: str, name: str, *password: str) -> None:
    start_django()
    from vinery_accounts.models import User

    if action == "create":
        User.objects.create_superuser(name, password=password[0])
    else:
        User.objects.get(username=name).delete()


if __name__ == "__main__":
    main(*sys.argv[1:])
