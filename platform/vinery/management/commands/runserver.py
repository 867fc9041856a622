"""`manage.py runserver`: Django's development server, by Daphne.

Daphne brings the same command when it is an installed app, but then every process pays for
Twisted: 26 MB and a quarter of the start (measured with Django 5.2, Twisted 26).
"""

from daphne.management.commands.runserver import Command

__all__ = ["Command"]
