"""A flower shop that speaks six protocols: a hub, those who talk through it, and what Spark makes of that."""
