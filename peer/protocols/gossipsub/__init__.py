"""GossipSub: topic meshes on top of ambient connections, repaired by gossip and guarded by scores.

Two parts share the work. The overlay (``mesh``) holds the specification's peering state: connections, meshes, fanout,
scores and the heartbeat. The dissemination (``router``) rides on it: messages, the message cache and gossip.

Source: libp2p specifications, pubsub/gossipsub/gossipsub-v1.0.md and gossipsub-v1.1.md.
"""
