"""Topics of Apache Kafka as an upstream."""
