"""SpiderCast: few neighbours that together share every topic of a node's interest K times."""
