"""Studies: a grid of simulated experiments over several seeds, and the tables and figures that come of it."""
