"""Rules about what events mean, which the tables of runs and the observer of simulations (``harness.studies``) share.

Tables take the events from files, studies take them from a simulation in memory. Measures are computed of the results.

Other facts have two forms, one for the events of a simulation and one for the rows of tables, since a common form would
cost time or memory, or change results. They are not in this package: the form of studies is in
``harness.studies``, that of runs in ``metrics.tables``. ``tests/property/test_studies_and_tables.py`` and
``tests/integration/test_tables_expressions.py`` compare them.

- **Expected deliveries**: the observer has the subscribers of each topic as a set with one bit per node. The table
  ``deliveries`` joins messages with intervals of subscriptions, since a task has a share of the messages in any order.
- **First deliveries**: the observer removes a node from a message's set when it delivers the message, and keeps 9 bytes
  per delivery. Columns for ``metrics.tables.first_deliveries`` would keep 17 bytes per delivery until the end of the
  simulation.
- **Duplicates and relays**: the table ``hops`` knows the copies from frames, and the first event of a message at a node
  decides. The observer decides by the event of each copy. They differ if a node first relays a message on one topic and
  then delivers it on another: the second copy is a duplicate at a relay in the table, and a first copy in the study.
- **Snapshots**: a study reads the state of nodes, the table ``overlay`` reads intervals of links. Both fill the arrays
  of ``metrics.overlay.snapshot.Snapshot``, of which everything else is computed.
"""
