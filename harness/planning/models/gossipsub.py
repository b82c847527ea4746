"""The model of GossipSub: its meshes, and the copies that they carry; and its parameters for scripts of programs."""

from collections.abc import Iterator

from harness.planning.copies import Subscribed, links_of, spread_once
from harness.planning.overlay_models import FullMembership, Logical, OverlayModel, carry
from peer.core.bitset import bitset, members, sample
from peer.interop.script import Parameters
from peer.protocols.gossipsub.parameters import GossipsubParameters, to_ns


def model_overlay(parameters: GossipsubParameters, network: FullMembership) -> OverlayModel:
    """Return meshes over random connections, and over the connections that a mesh opens if it lacks peers."""
    links = network.first_links()
    meshes: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in network.shared_topics():
        mesh: dict[int, set[int]] = {node: set() for node in members(subscribers)}
        for node in network.shuffled(subscribers):
            if len(mesh[node]) >= parameters.chosen.d_lo:
                continue
            around = [peer for peer in links[node] if peer in mesh]
            if parameters.discovery == "topics" and len(around) < parameters.d:
                fresh = subscribers & ~bitset([node, *around])
                for peer in members(sample(fresh, parameters.d - len(around), network.draws)):
                    links[node].append(peer)
                    links[peer].append(node)
                    around.append(peer)
            fit = [peer for peer in around if peer not in mesh[node] and len(mesh[peer]) < parameters.d_hi]
            for peer in network.draws.sample(fit, min(parameters.d - len(mesh[node]), len(fit))):
                mesh[node].add(peer)
                mesh[peer].add(node)
                carry(meshes, node, peer, topic)
    return OverlayModel(links, meshes)


def count_copies(
    parameters: GossipsubParameters, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]
) -> int:
    """Count the first copies in the topics' meshes, or to all subscribers known to the publisher with flood publishing.

    Copies that gossip repairs and copies that IDONTWANT suppresses are not modelled.
    """
    interested = [other for other in model.neighbours[publisher] if not subscribed[other].isdisjoint(topics)]

    def receivers(node: int) -> Iterator[int]:
        meshes = (other for other, carried in links_of(model, subscribed, node) if topics & carried)
        eager = interested if node == publisher and parameters.chosen.flood_publish else meshes
        return (other for other in eager if other != publisher)

    return spread_once(publisher, receivers)


def choose_script_parameters(given: GossipsubParameters) -> Parameters:
    """Return the parameters of a script that all known programs have."""
    return Parameters(
        D=given.d,
        Dlo=given.chosen.d_lo,
        Dhi=given.d_hi,
        Dscore=given.d_score,
        Dout=given.d_out,
        HistoryLength=given.mcache_len,
        HistoryGossip=given.mcache_gossip,
        Dlazy=given.d_lazy,
        GossipFactor=given.gossip_factor,
        GossipRetransmission=given.gossip_retransmission,
        HeartbeatInitialDelay=to_ns(given.heartbeat_initial_delay_s),
        HeartbeatInterval=to_ns(given.heartbeat_interval_s),
        FanoutTTL=to_ns(given.fanout_ttl_s),
        PrunePeers=given.prune_peers,
        PruneBackoff=to_ns(given.prune_backoff_s),
        MaxIHaveLength=given.max_ihave_length,
        MaxIHaveMessages=given.max_ihave_messages,
        IWantFollowupTime=to_ns(given.iwant_followup_s),
        IDontWantMessageThreshold=given.chosen.idontwant_min_bytes,
    )
