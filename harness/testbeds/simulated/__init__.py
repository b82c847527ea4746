"""The simulated testbed: the same nodes on virtual time, up to ten thousand in one process."""
