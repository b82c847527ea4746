"""T-Man with a navigable ring: nodes exchange routing tables and keep the neighbours that they prefer."""
