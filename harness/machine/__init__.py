"""The machine that a run uses: what it offers, how it is kept fit for measuring, and what disturbed it.

``capacity`` and ``disk_reserve`` are about room; ``awake`` and ``scheduling`` about who gets a processor; ``pressure``
and ``watchdog`` record what the run did not get. ``sandbox`` runs a command in namespaces of its own, ``netns`` code in
another network namespace, and ``child`` a module in a process that ends with this one. Planes, testbeds, stages and the
planner use them; none of them knows an emulated network or a peer.
"""
