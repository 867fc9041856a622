"""`manage.py runserver`: Daphne as the development server.

Daphne has the same command as an installed app, but then every process imports Twisted: 26 MB and a
quarter of the start time (measured with Django 5.2, Twisted 26).
"""

from daphne.management.commands.runserver import Command

__all__ = ["Command"]
