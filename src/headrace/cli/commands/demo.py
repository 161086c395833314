"""`headrace demo`: the main job, end to end, on real flights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import out
from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import Master, Port
from headrace.process.lifeline import hold_lifeline
from headrace.settings import read_settings

DEFAULT_HOME = Path("headrace-demo")

Home = Annotated[Path, typer.Option("--home", help="Folder for everything the demo makes.", metavar="DIR")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The feed's delays, duplicates, losses and broken lines follow from it.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("demo", epilog="Examples: [bold]headrace demo[/bold], [bold]headrace demo --year --seed 7[/bold]")(demo)
    app.command("demo-feed", hidden=True)(demo_feed)


def demo(
    year: Annotated[bool, typer.Option("--year", help="All of 2013, 336,776 departures, rather than January's 27,004.")] = False,
    seed: Seed = 1,
    home: Home = DEFAULT_HOME,
    port: Port = None,
    master: Master = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw an unfinished run away first.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Keep the status page up at the end, until Ctrl-C.")] = False,
) -> None:
    """Run the main job on real flights, and check that nothing is lost, repeated or out of order.

    Ctrl-C stops it cleanly; the same command goes on where it stopped. Exit code 0 only if the check holds.
    """
    from headrace.demo.job import DemoOptions, run_demo  # late: it loads Arrow and Matplotlib

    settings = read_settings(home=home.absolute(), port=port, master=master)
    set_up_logging(settings, quiet=True)
    options = DemoOptions(period="year" if year else "january", seed=seed, fresh=fresh, hold=hold)
    raise typer.Exit(asyncio.run(run_demo(settings, options, out)))


def demo_feed(home: Home, seed: Seed = 1, period: str = "january") -> None:
    """Write the demo's feed (run by the demo)."""
    from headrace.demo.feed.process import main

    hold_lifeline()
    raise typer.Exit(main(["--home", str(home), "--seed", str(seed), "--period", period]))
