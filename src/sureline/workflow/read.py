"""Reading a workflow file of any kind that is understood."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sureline.workflow.check import Available, Reading
from sureline.workflow.chemical import is_chemical, read_chemical
from sureline.workflow.composition import is_composition, read_composition
from sureline.workflow.globs import UserFiles
from sureline.workflow.mistakes import UserError
from sureline.workflow.quantities import QuantityError, parse_speed
from sureline.workflow.wfformat_reader import read_wfformat
from sureline.workflow.yaml_reader import read_yaml
from sureline.workflow.yaml_tree import FILE_BYTES_MAX


def read_workflow(
    path: Path,
    *,
    directory: Path,
    overrides: Mapping[str, str] | None = None,
    pretend: bool = False,
    speed: float = 1.0,
    capacity: Available | None = None,
    to_run: bool = True,
    disk: UserFiles | None = None,
) -> Reading:
    """Read and check a workflow file, to be run in `directory` on a machine of this capacity.

    `.json` is WfFormat, `.yaml` and `.yml` are YAML, `.chem` is the chemical notation; of another
    file the content decides.
    Composition text is read only if it is not `to_run`: its services need providers.
    Raises UserError if there is no file to read or an option does not suit it, and WorkflowError
    with all mistakes that are in it.
    """
    data = read_bytes(path)
    try:
        parse_speed(speed)
    except QuantityError as error:
        raise UserError(str(error)) from None
    with _collector_paused():
        return read_text(
            data,
            file=os.fspath(path),
            directory=directory,
            overrides=overrides,
            pretend=pretend,
            speed=speed,
            beside=path.parent,
            capacity=capacity,
            to_run=to_run,
            disk=disk,
        )


def read_text(
    data: bytes,
    *,
    file: str,
    directory: Path,
    overrides: Mapping[str, str] | None = None,
    pretend: bool = False,
    speed: float = 1.0,
    beside: Path | None = None,
    capacity: Available | None = None,
    to_run: bool = True,
    disk: UserFiles | None = None,
) -> Reading:
    """The same for the content of a file, such as one read from the standard input."""
    if _is_json(file, data):
        if overrides:
            raise UserError(f"{file} is a WfFormat file and has no params to set; leave out --set")
        return read_wfformat(
            data,
            file=file,
            directory=directory,
            pretend=pretend,
            speed=speed,
            beside=beside,
            capacity=capacity,
            disk=disk,
        )
    if is_chemical(file):
        if overrides or pretend:
            option = "--set" if overrides else "--pretend"
            raise UserError(f"{file} is in the chemical notation; leave out {option}")
        return read_chemical(
            data, file=file, directory=directory, beside=beside, capacity=capacity, disk=disk
        )
    if _is_composition(file, data):
        if to_run:
            raise UserError(
                f"{file} composes services, which need providers to run them; "
                f"see what they could do with: sureline plan {file} --bids BIDS.csv"
            )
        if overrides or pretend:
            option = "--set" if overrides else "--pretend"
            raise UserError(f"{file} is composition text; leave out {option}")
        return read_composition(data, file=file)
    if pretend:
        raise UserError(
            f"{file} is not a WfFormat trace, so there are no runtimes to pretend; "
            "leave out --pretend"
        )
    return read_yaml(
        data,
        file=file,
        directory=directory,
        overrides=overrides,
        beside=beside,
        capacity=capacity,
        disk=disk,
    )


def read_bytes(path: Path) -> bytes:
    """The content of a workflow file. Raises UserError."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"{path} is a directory; name the workflow file in it")
        if status.st_size > FILE_BYTES_MAX:
            raise UserError(f"{path} is larger than 512 MiB; describe alike tasks with `for:`")
        with open(path, "rb") as stream:
            # a pipe tells no size beforehand: read one byte too many to notice
            data = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; `sureline init` makes an example") from None
    except PermissionError:
        raise UserError(f"{path} may not be read; check its permissions") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{path} cannot be read: {reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UserError(f"{path} is larger than 512 MiB; describe alike tasks with `for:`")
    return data


def _is_json(file: str, data: bytes) -> bool:
    suffix = os.path.splitext(file)[1].lower()
    if suffix in (".yaml", ".yml", ".chem"):
        return False
    return suffix == ".json" or data[:1000].lstrip().startswith(b"{")


def _is_composition(file: str, data: bytes) -> bool:
    suffix = os.path.splitext(file)[1].lower()
    return suffix not in (".yaml", ".yml") and is_composition(file, data)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Millions of objects are made and almost none is garbage: looking for some costs a third."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
