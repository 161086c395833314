"""Senders to services of clouds, which take several copies in a request and answer for each."""
