"""How bulk requests and answers look on their connections.

After the greeting the one who connected sends requests: four bytes of length, then the request.
Each is answered in turn: a prefix (status, size of the header, size of the body), header, body.
There is nothing to decode: what the bytes mean is the users' affair.
"""

from __future__ import annotations

import struct

OK = 0
REFUSED = 1
"""The header is the reason, in UTF-8; there is no body."""

PREFIX = struct.Struct(">BII")


class BulkError(Exception):
    """A bulk request without an answer; says why."""


class BulkLostError(BulkError):
    """The connection broke before the answer was complete."""


class BulkRefusedError(BulkError):
    """The other side will not answer this request; says why."""
