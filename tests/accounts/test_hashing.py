"""Passwords are hashed as Django does, but one at a time and with a lower priority."""

import base64
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth import hashers
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from vinery_accounts.signin.sessions import PatientHasher


def test_passwords_are_hashed_as_django_does_but_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = PatientHasher().encode("secret", "salt", 2)
    assert encoded == PBKDF2PasswordHasher().encode("secret", "salt", 2)
    assert PatientHasher().verify("secret", encoded)
    assert not PatientHasher().verify("another", encoded)

    def priority(*_: object, **__: object) -> bytes:
        return str(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).encode()

    def encode() -> str:  # in a new thread: a thread cannot raise its priority again
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 12)
        return PatientHasher().encode("secret", "salt", 2)

    monkeypatch.setattr(hashers, "pbkdf2", priority)
    with ThreadPoolExecutor(1) as thread:
        encoded = thread.submit(encode).result()
    assert base64.b64decode(encoded.rsplit("$", 1)[1]) == b"12"

    running, most, priorities = 0, 0, set()

    def compute(*_: object, **__: object) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        priorities.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        time.sleep(0.01)
        running -= 1
        return b"hash"

    monkeypatch.setattr(hashers, "pbkdf2", compute)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: PatientHasher().encode(str(number), "salt"), range(8)))

    assert most == 1
    # The tests themselves may have been started with `nice`.
    assert priorities == {max(5, os.getpriority(os.PRIO_PROCESS, 0))}
