"""Captures of any hosts to their TCP connections and UDP flows, each once, whoever recorded it (docs/captures.md).

``metrics.pcap`` reads a capture as what its host saw. Here several captures are read as what hosts sent each other.
``vantages`` reads the packets of all captures, ``directions`` finds which capture is at a packet's source, and
``tables`` makes a row per flow. ``reading`` divides the work into tasks, and ``written`` writes the tables. The kernels
know NumPy and Arrow only.
"""
