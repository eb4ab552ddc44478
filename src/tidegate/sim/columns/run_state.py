"""Where the run is.

The time; events in the queue and events ever put in; jobs that are submitted, over, that hold quota, that are
terminating; when the engine wants to be called; whether facts were applied that nothing was decided on yet.
"""

NOW, ENTRIES, PUT, SUBMITTED, OVER, HOLDERS, TERMINATING, WAKE, INSIDE = range(9)
