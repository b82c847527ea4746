"""The simulated testbed: the same nodes on virtual time, ten thousand of them in one process."""
