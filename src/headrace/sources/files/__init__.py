"""Files of any name, their identity, and the lock of a folder: what upstreams of files share."""
