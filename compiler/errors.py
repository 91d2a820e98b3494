"""The error that reaches a user: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations


class WebrelaxError(Exception):
    """A problem that the user can act on. The command line prints it without a traceback and exits with 2."""
