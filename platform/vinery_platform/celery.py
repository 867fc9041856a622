"""The Celery application.

Without Redis, messages are in the memory of the jobs process: only this process sends and runs
tasks. It takes messages along when it is killed, so a periodic task must also find every job.
"""

from celery import Celery

app = Celery("vinery")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
