"""The `sureline` command: its subcommands, and how failures become sentences and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import cyclopts

from sureline import __version__
from sureline.cli import console
from sureline.workflow.mistakes import SurelineError, WorkflowError

app = cyclopts.App(
    name="sureline",
    version=__version__,
    version_flags=["--version"],
    help_format="markdown",
    help="""Run workflows that finish on time, on machines nobody controls centrally.

    A workflow is a YAML file of commands and the files they read and make. Start with
    `sureline init`, then `sureline run workflow.yaml`. Every command has --help with an example
    and --json for programs.""",
)


def _register() -> None:
    from sureline.cli import inspecting, running, starting

    app.command(running.run)
    app.command(running.resume)
    app.command(running.cancel)
    app.command(starting.validate)
    app.command(starting.init)
    app.command(inspecting.runs)
    app.command(inspecting.show)
    app.command(inspecting.logs)


_register()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: never returns, exits with the code the command earned."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    sys.exit(run_command(tokens))


def run_command(tokens: list[str]) -> int:
    as_json = "--json" in tokens
    try:
        code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        return console.complain([_one_line(str(error))], as_json, 2, hint="see 'sureline --help'")
    except WorkflowError as error:
        return console.complain(error.mistakes, as_json, error.code)
    except SurelineError as error:
        return console.complain([str(error)], as_json, error.code)
    except BrokenPipeError:
        # The reader of our output went away (as `| head` does). That is its right; point stdout
        # at nothing, so that the interpreter's last flush does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())
