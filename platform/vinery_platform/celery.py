"""The Celery application. It finds tasks in the `tasks` module of each Django app.

Only jobs send and run tasks: a process that imports `accounts/tasks` imports this file before.
"""

from celery import Celery

app = Celery("vinery")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
