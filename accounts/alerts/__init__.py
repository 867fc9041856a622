"""Quotas that are nearly used up: when they will be, and telling people and programs in time.

forecast     when a quota runs out, pure arithmetic
quotas       how much of each is used, from the books
thresholds   which quotas have reached a threshold: an alert each, once in a window
deliveries   the messages of alerts: rows with a lease, sent and tried again
mail         as an e-mail
webhooks     as a signed HTTP request
addresses    where such a request may go
"""
