"""Implements `millstream context list | show | use | set | delete`, which give names to clusters."""

from typing import Annotated

import typer

from millstream.cli.failures import failures_explained, usage_error
from millstream.cli.options import AsJson
from millstream.cli.output import print_json, print_line, print_table

app = typer.Typer(
    help="Save the addresses of clusters under names, to use instead of --bootstrap.", no_args_is_help=True
)

_MISSING = "missing: select another with `millstream context use NAME`"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", show_default=False)]


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List the contexts. A star marks the current one."""
    with failures_explained(as_json):
        from millstream.process.contexts import read_contexts

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
            print_line("There are no contexts yet. `millstream context set NAME --bootstrap HOST:PORT` creates one.")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of the context (default: the current one).", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a context."""
    with failures_explained(as_json):
        from millstream.process.contexts import file_path, read_contexts

        contexts = read_contexts()
        bootstrap = contexts.chosen(name)
        if bootstrap is None:
            raise usage_error("there is no current context; select one with `millstream context use NAME`")
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
    """Select the current context, which commands use by default."""
    with failures_explained(as_json):
        from millstream.cli.contexts import write_contexts
        from millstream.process.contexts import read_contexts

        contexts = read_contexts().using(name)
        write_contexts(contexts)
        if as_json:
            print_json({"name": name, "bootstrap": contexts.bootstrap(name), "current": True})
        else:
            print_line(f"The current context is now {name}: {contexts.bootstrap(name)}.")


@app.command("set")
def set_context(
    name: Name,
    brokers: Annotated[
        str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT,...", help="Bootstrap brokers of the cluster.")
    ],
    use_it: Annotated[
        bool, typer.Option("--use", help="Make it the current context. The first one always is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add or change a context."""
    with failures_explained(as_json):
        from millstream.cli.contexts import with_context, write_contexts
        from millstream.process.contexts import read_contexts

        contexts = with_context(read_contexts(), name, brokers)
        contexts = contexts.using(name) if use_it else contexts
        path = write_contexts(contexts)
        if as_json:
            print_json({"name": name, "bootstrap": brokers, "current": name == contexts.current})
        else:
            current = " (current)" if name == contexts.current else ""
            print_line(f"Saved context {name}{current} in {path}.")


@app.command()
def delete(name: Name, as_json: AsJson = False) -> None:
    """Delete a context. The cluster itself is not changed."""
    with failures_explained(as_json):
        from millstream.cli.contexts import write_contexts
        from millstream.process.contexts import read_contexts

        write_contexts(read_contexts().without(name))
        if as_json:
            print_json({"deleted": name})
        else:
            print_line(f"Deleted context {name}.")
