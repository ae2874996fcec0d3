"""What a caller asks of a run, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sureline.compose import HOME
from sureline.compose.overwriting import refuse_to_overwrite
from sureline.compose.terms import TermsRefusedError, before, verdict
from sureline.peer.capacity import Capacity, this_machine
from sureline.run.options import Options
from sureline.strategies import resolved, strategy
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph
from sureline.workflow.quantities import parse_duration, parse_size


class Asked(NamedTuple):
    options: Options
    machine: Capacity

    @classmethod
    def of(
        cls,
        where: Path,
        *,
        fresh: bool,
        stop_on_failure: bool,
        retry_delay: str | float,
        cores: float | None,
        memory: str | int | None,
        gpus: int | None,
        tags: Mapping[str, int | None] | None,
        grid: str | None,
        strategy: str | None,
        settings: Mapping[str, bool | float | str] | None,
        within: str | float | None,
        by: str | None,
        budget: float | None,
        surety: str | float | None,
        repair: bool,
        anyway: bool,
        overwrite: bool,
        trust: bool,
    ) -> Asked:
        from sureline.cli.terms import terms

        try:
            memory_bytes = None if memory is None else parse_size(str(memory))
            delay_s = parse_duration(str(retry_delay))
            wanted = terms(_text(within), by, budget, _text(surety))
        except ValueError as error:
            raise UserError(str(error)) from None
        except UserError as error:
            raise UserError(in_python(str(error))) from None
        options = resolved(
            Options(
                fresh=fresh,
                stop_on_failure=stop_on_failure,
                retry_delay_s=delay_s,
                grid=grid or "",
                strategy=strategy or "",
                settings=dict(settings or {}),
                deadline_at=wanted.deadline_at,
                budget=wanted.budget,
                surety=wanted.surety,
                repair=repair,
                anyway=anyway,
                overwrite=overwrite,
                trust=trust,
            )
        )
        return cls(
            options,
            this_machine(where, cores=cores, memory_bytes=memory_bytes, gpus=gpus, tags=tags),
        )


def refuse_if_hopeless(graph: Graph, where: Path, asked: Asked) -> None:
    """Raise what the command would say with exit code 2 or 3."""
    options = asked.options
    if not options.overwrite:
        try:
            refuse_to_overwrite(graph, where / HOME)
        except UserError as error:
            raise UserError(in_python(str(error))) from None
    if options.grid:
        from sureline.cli.options import check_grid

        check_grid(options.grid, graph)
        return
    if options.deadline_at is None or options.anyway or strategy(options.strategy).judges:
        return
    known = before(graph, where / HOME, fresh=options.fresh)
    _, refusal = verdict(graph, asked.machine, known, options.terms)
    if refusal is not None:
        said = f"{refusal.why}; {in_python(refusal.nearest)}; anyway=True starts it"
        raise TermsRefusedError(said, refusal)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def in_python(said: str) -> str:
    """
    >>> in_python("--within 3s would do, so would --surety 0.5")
    'within=3s would do, so would surety=0.5'
    """
    return re.sub(r"--([a-z]+) ?", r"\1=", said)
