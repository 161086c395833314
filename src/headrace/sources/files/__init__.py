"""Files of any name, their identity, their lines, and the lock of a folder: what upstreams of files share."""
