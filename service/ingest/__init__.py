"""Bytes -> event -> transaction: reading job events, the Kafka worker, dead letters."""
