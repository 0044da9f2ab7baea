"""`culver overlay`: shows the other sites of the overlay, as a site knows them, and has it forget one."""

import time
from collections.abc import Callable
from typing import Any

import click

from culver.cli.client_calls import ask, json_line, json_option, url_option
from culver.cli.overlay_text import forgotten_text, links_page, predicates_page, routes_page, sites_page
from culver.cli.printable_text import printable
from culver.client import Client
from culver.messages import ForgottenSite, OverlayStatus


@click.group(no_args_is_help=True)
def overlay() -> None:
    """Show the other sites that a site is linked with, or have it forget one.

    Sites of an overlay feed each other: an event that is published at one of them reaches the subscribers of all.
    `culver serve --name NAME --overlay HOST:PORT` starts such a site, and `culver demo overlay` shows several.
    """


@overlay.command()
@json_option
@url_option
def sites(as_json: bool, url: str) -> None:
    """Show the ways to all sites, what waits for them, what came from them, and what is missing.

    \b
    Examples:
      culver overlay sites
      culver overlay sites --json | jq '.sites[] | select(.pending > 0) | .name'
    """
    _show(
        url,
        as_json,
        sites_page,
        lambda seen: {
            "site": seen.site,
            "sites": seen.sites,
            "clusters": seen.clusters,
            "carriages": seen.carriages,
            "gaps": seen.gaps,
            "troubles": seen.troubles,
        },
    )


@overlay.command()
@json_option
@url_option
def links(as_json: bool, url: str) -> None:
    """Show the open links, the addresses that the site dials, and what was refused.

    \b
    Examples:
      culver overlay links
      culver overlay links --url http://site:8080 --json | jq '.peers'
    """
    _show(
        url,
        as_json,
        lambda seen: links_page(seen, time.time()),
        lambda seen: {
            "links": seen.links,
            "peers": seen.peers,
            "refusals": seen.refusals,
            "troubles": seen.troubles,
            "totals": seen.totals,
        },
    )


@overlay.command()
@json_option
@url_option
def routes(as_json: bool, url: str) -> None:
    """Show the way to each site, and the links between all sites.

    \b
    Example:
      culver overlay routes
    """
    _show(url, as_json, routes_page, _routes_record)


@overlay.command()
@json_option
@url_option
def predicates(as_json: bool, url: str) -> None:
    """Show what each site asks for: the size of its encoded subscriptions, and whether they are in effect.

    \b
    Example:
      culver overlay predicates
    """
    _show(url, as_json, predicates_page, _predicates_record)


@overlay.command()
@click.argument("name")
@json_option
@url_option
def forget(name: str, as_json: bool, url: str) -> None:
    """Have a site forget another one that does not come back.

    What waits for it there is dropped. A site that can be reached is refused. Run it at every site that knows the
    name.

    \b
    Example:
      culver overlay forget lyon --url http://127.0.0.1:8081
    """

    async def work(client: Client) -> tuple[str, ForgottenSite]:
        forgotten = await client.forget_site(name)
        return (await client.overlay()).site.name, forgotten

    own, forgotten = ask(url, work)
    click.echo(json_line(forgotten) if as_json else printable(forgotten_text(forgotten, own)))


def _routes_record(seen: OverlayStatus) -> dict[str, Any]:
    ways = [
        {"destination": each.name, "next_hop": each.next_hop, "path": each.path, "cost": each.distance}
        for each in seen.sites
    ]
    return {"site": seen.site.name, "routes": ways, "links": seen.routes, "clusters": seen.clusters}


def _predicates_record(seen: OverlayStatus) -> dict[str, Any]:
    others = [
        {
            "site": each.name,
            "advertisement": each.advertisement,
            "in_effect_from": each.in_effect_from,
            "own_refusal": each.own_refusal,
        }
        for each in seen.sites
    ]
    return {"site": seen.site.name, "advertisement": seen.site.advertisement, "sites": others}


def _show(
    url: str,
    as_json: bool,
    page: Callable[[OverlayStatus], str],
    record: Callable[[OverlayStatus], dict[str, Any]],
) -> None:
    seen = ask(url, Client.overlay)
    click.echo(json_line(record(seen)) if as_json else printable(page(seen)))
