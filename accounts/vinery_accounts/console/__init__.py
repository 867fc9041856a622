"""The console under `/console/`. Permissions come from `access`, figures from `usage/reports`, and
every change goes through `resources`."""
