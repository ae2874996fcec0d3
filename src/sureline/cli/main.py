"""The `sureline` command: its subcommands, and how failures become sentences and exit codes."""

from __future__ import annotations

import cyclopts

from sureline import __version__
from sureline.cli import console
from sureline.workflow.mistakes import SurelineError, UserError, WorkflowError
from sureline.world.identity.errors import IdentityError

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
    from sureline.cli import (
        cataloguing,
        choosing,
        drawing,
        experimenting,
        fetching,
        filing,
        gridding,
        inspecting,
        looking,
        peering,
        pilots,
        planning,
        queueing,
        reacting,
        remembering,
        reproducing,
        running,
        simulating,
        sites,
        starting,
        submitting,
    )

    app.command(running.run)
    app.command(submitting.submit)
    app.command(submitting.wait)
    app.command(running.resume)
    app.command(running.cancel)
    app.command(fetching.fetch)
    app.command(planning.plan)
    app.command(choosing.strategies)
    app.command(starting.validate)
    app.command(starting.init)
    app.command(inspecting.runs)
    app.command(inspecting.show)
    app.command(inspecting.logs)
    app.command(sites.sites)
    app.command(cataloguing.catalog)
    app.command(looking.status)
    app.command(looking.explain)
    app.command(looking.story)
    app.command(remembering.history)
    app.command(drawing.graph)
    app.command(drawing.report)
    app.command(gridding.grid)
    app.command(gridding.invite)
    app.command(gridding.revoke)
    app.command(peering.peer)
    app.command(peering.peers)
    app.command(peering.leave)
    app.command(queueing.queue)
    app.command(pilots.pilots)
    app.command(filing.files)
    app.command(simulating.simulate)
    app.command(reproducing.reproduce)
    app.command(experimenting.experiment)
    app.command(reacting.react)


_register()


def run_process(tokens: list[str]) -> int:
    """Run a command as this process's whole purpose; the exit code it earned."""
    console.open_streams(as_json="--json" in tokens)
    return run_command(tokens)


def run_command(tokens: list[str]) -> int:
    as_json = "--json" in tokens
    try:
        _check_text(tokens)
        code = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        console.flush()
    except cyclopts.CycloptsError as error:
        command = next((f" {t}" for t in tokens[:1] if t in app), "")
        return console.complain(
            [_sentence(error)], as_json, 2, hint=f"see 'sureline{command} --help'"
        )
    except WorkflowError as error:
        return console.complain(error.mistakes, as_json, error.code)
    except console.OutputError as error:
        console.drop_output()
        return console.complain([str(error)], False, error.code)
    except SurelineError as error:
        return console.complain([str(error)], as_json, error.code)
    except IdentityError as error:
        # What is wrong with a home, a grid or an invitation is the user's to mend.
        return console.complain([str(error)], as_json, 2)
    except BrokenPipeError:
        # The reader of our output went away (as `| head` does). That is its right.
        console.drop_output()
        return 141
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _check_text(tokens: list[str]) -> None:
    """Journals and JSON hold text, so a name that is no text is refused before anything is done."""
    for token in tokens:
        try:
            token.encode()
        except UnicodeEncodeError:
            shown = token.encode(errors="backslashreplace").decode()
            raise UserError(f"'{shown}' is not UTF-8 text; rename it") from None


def _sentence(error: cyclopts.CycloptsError) -> str:
    """The parser's complaint in the user's words."""
    if isinstance(error, cyclopts.UnusedCliTokensError):
        return f"too many arguments: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument is not None:
        name = error.keyword or error.argument.name
        command = " ".join(error.command_chain or ())
        return f"{name} needs a value" if name[0] == "-" else f"'sureline {command}' needs {name}"
    if isinstance(error, cyclopts.CoercionError) and error.token is not None:
        sort = {int: "a whole number", float: "a number"}.get(error.target_type or str)
        if sort:
            return f"{error.token.keyword or 'the value'} {error.token.value!r} is not {sort}"
    return " ".join(str(error).split()).rstrip(".")
