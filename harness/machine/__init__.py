"""The machine that a run uses: what it offers, how it is kept fit for measuring, and what disturbed it.

``capacity`` and ``disk_reserve`` are about room; ``awake`` and ``scheduling`` about who gets a processor; ``pressure``
and ``watchdog`` record what the run did not get. ``sandbox`` runs a command in namespaces of its own. Testbeds, stages
and the planner use them; none of them knows a network or a peer.
"""
