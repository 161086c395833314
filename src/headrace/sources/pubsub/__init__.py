"""Subscriptions of Google Cloud Pub/Sub: pull, hold, acknowledge."""
