"""Classic and quorum queues of RabbitMQ: consume, hold, acknowledge."""
