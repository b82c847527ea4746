"""The kinds of underlays that are computed. ``[underlay] kind`` and the plan follow from ``GENERATORS``.

``topologies.importers`` has the kinds that are read from files.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from topologies.generated import cities_underlay, square_delays, square_underlay, uniform_underlay
from topologies.geography import world_cities
from topologies.graph_kinds import GRAPHS, generate
from topologies.model import Underlay
from topologies.network import OfPair, uniform_network
from topologies.sampling import Draws, choose_sites, place_hosts


class Generator(Struct, frozen=True):
    """A kind of generated underlays.

    Attributes:
        name: ``[underlay] kind``.
        make: from the number of hosts, the parameters and the streams of random numbers to an underlay with so many
            hosts. The same arguments give the same underlay. ``topologies.generated.plain_underlay`` makes one of
            delays.
        parameters: the form of a section with its name, an instance of which ``make`` is given; None = it is given the
            section ``[underlay]``.
        carries: what it can have besides delays: ``jitter`` and ``loss`` of every pair, ``rates`` of access links, a
            ``graph`` of routers and links.
        delays: from the same arguments to the one-way delay (ms) of a pair, if it is a function of the pair and the
            underlay has nothing else: ten thousand hosts have a hundred million pairs.
    """

    name: str
    make: Callable[[int, Any, Draws], Underlay]
    parameters: type[Struct] | None = None
    carries: frozenset[str] = frozenset()
    delays: Callable[[int, Any, Draws], OfPair] | None = None


def _make_cities(hosts: int, access_delay_ms: float, draws: Draws) -> Underlay:
    """Make ``world-cities``: a sample of the cities that is spread over the continents, larger ones preferred."""
    cities = world_cities()
    weights = [float(city.population) for city in cities]
    sites = choose_sites([city.continent for city in cities], weights, hosts, draws)
    return place_hosts(cities_underlay(cities), sites, access_delay_ms)


def _make_graph(kind: str, values: dict[str, Any], hosts: int | None, access_delay_ms: float, draws: Draws) -> Underlay:
    """Generate a graph of routers and links, and place the hosts at its sites.

    Args:
        kind: one of ``GRAPHS``.
        values: of its keys.
        hosts: number of hosts; None = as many as the graph has places for.
        access_delay_ms: of hosts at the same site.
        draws: the streams of random numbers.
    """
    made = generate(kind, values, draws("graph"))
    placed = hosts or len(made.sites) * made.hosts_per_site
    sites = choose_sites(made.regions, [1.0] * len(made.sites), placed, draws)
    return place_hosts(made.underlay(kind), sites, access_delay_ms)


def _describe_graph(kind: str) -> Generator:
    """Describe a kind of graphs; without ``routers``, it has one per host."""

    def values(hosts: int, spec: Any) -> dict[str, Any]:  # noqa: ANN401  the section, whose form imports this module
        found = {key: getattr(spec, key) for key in GRAPHS[kind]}
        return found | {"routers": found["routers"] or hosts} if "routers" in found else found

    return Generator(
        kind,
        lambda hosts, spec, draws: _make_graph(kind, values(hosts, spec), spec.hosts, spec.access_delay_ms, draws),
        carries=frozenset({"graph"}),
    )


GENERATORS: dict[str, Generator] = {
    generator.name: generator
    for generator in (
        Generator("world-cities", lambda hosts, spec, draws: _make_cities(hosts, spec.access_delay_ms, draws)),
        Generator(
            "unit-square",
            lambda hosts, spec, draws: square_underlay(hosts, spec.side_ms, draws("square")),
            delays=lambda hosts, spec, draws: square_delays(hosts, spec.side_ms, draws("square")),
        ),
        Generator(
            "uniform",
            lambda hosts, spec, draws: uniform_underlay(hosts, spec.delay_ms),
            delays=lambda hosts, spec, draws: uniform_network(hosts, spec.delay_ms).delay_ms,
        ),
        *map(_describe_graph, GRAPHS),
    )
}
"""Those of Trellis; ``topologies.kinds`` has all."""
