"""`World.fetch(Blob(...))` on a live node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from sureline.peer.files.service import FetchError, FileService
from sureline.peer.jobs import Blob, FileMissing, FileReady
from sureline.world.address import Node
from sureline.world.live import Fetcher
from sureline.world.protocol import Fetched, Wanted

_log = logging.getLogger(__name__)


class BlobFetcher:
    """Fetches `Blob`s through the service, and leaves everything else to `otherwise`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        service: FileService,
        otherwise: Fetcher | None = None,
    ) -> None:
        self._loop = loop
        self._service = service
        self._otherwise = otherwise
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        """`on_done` gets FileReady or FileMissing, and is never called before this returns."""
        if isinstance(wanted, Blob):
            task = self._loop.create_task(self._fetch(wanted, sources, on_done))
            self._tasks.add(task)  # a task that nobody holds may vanish
            task.add_done_callback(self._tasks.discard)
        elif self._otherwise is not None:
            self._otherwise.fetch(wanted, sources, on_done)
        else:
            raise AssertionError(f"nobody fetches {wanted}")

    async def _fetch(
        self, wanted: Blob, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        answer: Fetched
        try:
            found = await self._service.fetch(wanted.file, list(sources))
            answer = FileReady(found.file, found.source)
        except (FetchError, OSError) as error:
            answer = FileMissing(wanted.file.path, str(error))
        except Exception as error:  # whoever waits must hear of it, whatever it is
            _log.exception("fetching %s failed", wanted.file.digest)
            answer = FileMissing(wanted.file.path, f"fetching it failed here: {error!r}")
        on_done(answer)
