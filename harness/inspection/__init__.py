"""Reading the frames of any capture for ``trellis inspect``.

Files, link layers, IP and TCP headers are read by ``metrics.pcap``, frames independently of it and of ``peer.wire``.
"""
