"""The stack for people with nothing: Temporal's dev server and PostgreSQL under one state folder.

Imports nothing from the other root packages, and nothing here when the package itself is imported, so
that a door can ask for `embedded.errors` without paying for drivers.
"""
