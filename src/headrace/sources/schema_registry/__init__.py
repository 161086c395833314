"""Values in Confluent's wire format: their schemas come from a schema registry."""
