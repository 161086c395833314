"""What users subclass or declare: triggers, producers, upstreams, watches."""
