"""`python -m tidegate`."""

from tidegate.cli.main import app

app()
