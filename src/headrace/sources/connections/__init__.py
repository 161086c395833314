"""What connections to services share: their settings, requests to REST APIs, and probes."""
