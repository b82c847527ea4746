"""What a run has recorded besides traces and captures: one module per file, with its schema and what follows from it.

``probing`` reads ``achieved.parquet``, ``host_captures`` the packets that sampled hosts captured, and ``samples`` those
of Prometheus. The other modules have the names of their files.
"""
