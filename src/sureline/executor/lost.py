"""What an executor's callers may meet besides the exceptions of their own calls."""

from __future__ import annotations

from sureline.workflow.mistakes import SurelineError


class WorkerLostError(SurelineError):
    """The process that ran a call died. Only that call is lost; the executor goes on."""
