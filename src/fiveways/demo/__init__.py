"""The demonstration of `fiveways demo`: a flower shop with a hub, peers in six protocols, and a Spark report."""
