"""Studies: a grid of simulated experiments over several seeds, with tables and figures."""
