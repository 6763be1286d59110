"""A broker that Kafka's clients take for Kafka, in memory, on one node: an example of the three uses of a purgatory."""
