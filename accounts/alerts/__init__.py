"""Quotas that are nearly used up and keys that are nearly over: telling people and programs in
time.

forecast     when a quota runs out, pure arithmetic
quotas       how much of each is used, from the books
thresholds   which quotas have reached a threshold: an alert each, once in a window
moments      when something becomes of a key, and whether that still holds
reminders    which keys that is near for: a reminder each, once for each moment
deliveries   the messages of both: rows with a lease, sent and tried again
mail         as an e-mail
webhooks     as a signed HTTP request
addresses    where such a request may go
"""
