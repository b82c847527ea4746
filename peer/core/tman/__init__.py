"""T-Man: nodes exchange routing tables and keep the neighbours that they prefer, here with a navigable ring."""
