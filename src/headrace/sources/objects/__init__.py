"""Objects of a bucket: list or be notified, read, record what is finished."""
