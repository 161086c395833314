"""Streams of NATS JetStream as an upstream, through durable pull consumers."""
