"""The Celery application. Tasks are found in the `tasks` module of each room."""

from celery import Celery

app = Celery("vinery")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
