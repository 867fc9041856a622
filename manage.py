#!/usr/bin/env python
"""Django's own command line."""

import os
import sys

if __name__ == "__main__":
    os.umask(0o077)  # a database that it creates is private
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "vinery_platform.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
