"""Reading the frames of any capture for ``trellis inspect``, independently of ``peer.wire`` and of the tables."""
