"""Clients that need packages of their own: `make test-clients` installs them."""

import os

collect_ignore = [] if os.environ.get("VINERY_TEST_CLIENTS") else ["test_clients.py"]
