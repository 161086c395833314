"""Streams of RabbitMQ: read by offset, with the progress in a queue beside each stream."""
