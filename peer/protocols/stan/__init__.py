"""StAN: a random overlay for each topic, aligned so that the overlays share physical links."""
