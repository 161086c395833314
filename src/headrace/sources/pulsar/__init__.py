"""Topics of Apache Pulsar: read by a subscription, with one consumer for each partition."""
