"""Alerts about quotas that are nearly used up.

quotas       the usage of each quota, from usage records, and when it runs out
thresholds   quotas that have reached a threshold: one alert in each window
deliveries   alerts with their messages: rows with a lease, sent as e-mails or by webhooks, and
             retried
webhooks     messages as signed HTTP requests
"""
