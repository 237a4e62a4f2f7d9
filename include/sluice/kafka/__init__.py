"""Kafka itself, for sources and sinks: how clients reach a cluster, and what it has."""
