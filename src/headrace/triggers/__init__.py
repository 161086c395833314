"""What users subclass and declare: triggers, producers, upstreams."""
