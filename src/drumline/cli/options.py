"""What the commands that read a spec take alike."""

from __future__ import annotations

import click

from drumline.engine.registry import engine_names

SPEC_ARGUMENT = click.argument("file", required=False, type=click.Path(allow_dash=True))
PARAMETER_OPTION = click.option(
    "-p", "--parameter", "given", multiple=True, metavar="NAME=VALUE", help="Set a parameter."
)
ON_OPTION = click.option(
    "--on",
    type=click.Choice(engine_names()),
    help="The engine, instead of the spec's.",
)
CONTEXT_OPTION = click.option("--context", metavar="NAME", help="The kubeconfig's context, instead of the spec's.")
NAMESPACE_OPTION = click.option("-n", "--namespace", metavar="NAME", help="The cluster's namespace, likewise.")
HOSTS_OPTION = click.option("--hosts", metavar="HOST,...", help="Run on these by ssh, instead of the spec's hosts.")
