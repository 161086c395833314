"""Topics of an MQTT 5 server as an upstream."""
