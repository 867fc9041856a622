"""Alerts about quotas that are nearly used up, and reminders of keys that expire soon.

quotas       the usage of each quota, from usage records, and when it runs out
thresholds   quotas that have reached a threshold: one alert in each window
moments      the dates of a key's expiry and rotation
reminders    keys with such a date soon: one reminder for each date
deliveries   alerts and reminders with their messages: rows with a lease, sent and retried
mail         messages as e-mails
webhooks     messages as signed HTTP requests
"""
