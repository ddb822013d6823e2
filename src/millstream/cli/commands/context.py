"""`millstream context list | show | use | set | delete`: clusters by name."""

from typing import Annotated

import typer

from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import AsJson
from millstream.cli.output import print_json, print_line, print_table

app = typer.Typer(help="Name clusters, so that --bootstrap need not be typed.", no_args_is_help=True)

_MISSING = "not there: `millstream context use NAME` chooses another"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)]


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List the contexts; the current one is marked."""
    with failures_explained(as_json):
        from millstream.cli.contexts import read_contexts

        contexts = read_contexts()
        rows: dict[str, str | None] = dict(sorted(contexts.bootstraps.items()))
        if contexts.current is not None:
            rows.setdefault(contexts.current, None)
        if as_json:
            print_json(
                [{"name": name, "bootstrap": at, "current": name == contexts.current} for name, at in rows.items()]
            )
        elif rows:
            shown = [("*" if name == contexts.current else "", name, at or _MISSING) for name, at in rows.items()]
            print_table(("", "context", "brokers"), shown)
        else:
            print_line("There are no contexts yet. `millstream context set NAME --bootstrap HOST:PORT` makes one.")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Otherwise the current one.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a context."""
    with failures_explained(as_json):
        from millstream.cli.contexts import file_path, read_contexts

        contexts = read_contexts()
        bootstrap = contexts.chosen(name)
        if bootstrap is None:
            raise usage_error("no context is the current one; `millstream context use NAME` makes one so")
        document = {
            "name": name or contexts.current,
            "bootstrap": bootstrap,
            "current": name in (None, contexts.current),
            "file": str(file_path()),
        }
        if as_json:
            print_json(document)
        else:
            for label, value in document.items():
                print_line(f"{label:<10} {('yes' if value else 'no') if isinstance(value, bool) else value}")


@app.command()
def use(name: Name, as_json: AsJson = False) -> None:
    """Make a context the current one: commands that name no broker go there."""
    with failures_explained(as_json):
        from millstream.cli.contexts import read_contexts, write_contexts

        contexts = read_contexts().using(name)
        write_contexts(contexts)
        if as_json:
            print_json({"name": name, "bootstrap": contexts.bootstrap(name), "current": True})
        else:
            print_line(f"Commands now go to {name} at {contexts.bootstrap(name)}.")


@app.command("set")
def set_context(
    name: Name,
    brokers: Annotated[
        str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT,...", help="The brokers to ask first.")
    ],
    use_it: Annotated[bool, typer.Option("--use", help="Make it the current one; the first always is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a context, or change one."""
    with failures_explained(as_json):
        from millstream.cli.contexts import read_contexts, write_contexts

        contexts = read_contexts().with_context(name, brokers)
        contexts = contexts.using(name) if use_it else contexts
        path = write_contexts(contexts)
        if as_json:
            print_json({"name": name, "bootstrap": brokers, "current": name == contexts.current})
        else:
            current = ", the current one" if name == contexts.current else ""
            print_line(f"Wrote context {name}{current} to {path}.")


@app.command()
def delete(name: Name, as_json: AsJson = False) -> None:
    """Delete a context. Nothing happens to the cluster."""
    with failures_explained(as_json):
        from millstream.cli.contexts import read_contexts, write_contexts

        write_contexts(read_contexts().without(name))
        if as_json:
            print_json({"deleted": name})
        else:
            print_line(f"Deleted context {name}.")
