"""Convert captures of any hosts to TCP connections and UDP flows, each once, whichever host recorded it.

See docs/captures.md. ``metrics.pcap`` reads a capture as what its host saw. Here several captures are read as what
hosts sent to each other. ``vantages`` reads the packets of all captures, ``directions`` finds which capture is at a
packet's source, and ``tables`` makes one row per flow. ``reading`` divides the work into tasks, and ``written`` writes
the tables. The kernels use NumPy and Arrow only.
"""
