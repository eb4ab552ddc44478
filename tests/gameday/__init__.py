"""A game day: steady load and random operator actions on a real control plane, and what must hold all the time.

`bench/gameday.py` runs it for an hour, `tests/test_gameday.py` for a minute. The rules are checked by watches and
arithmetic of their own: they read objects as the API server shows them, and nothing of Tidegate.
"""
