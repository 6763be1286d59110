"""A broker for Kafka's clients, in memory, on one node: an example of a purgatory's three uses in Kafka."""
