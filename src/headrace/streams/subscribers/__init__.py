"""The subscribers of a shared stream, their queues and backlogs."""
