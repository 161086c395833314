"""Log files by trigger and by run: how they are named, written, read and followed. Knows nothing of the rest of Headrace."""
