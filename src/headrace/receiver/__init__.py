"""The public listener of `Http` upstreams: verify requests, decode them, and store them durably before the answer."""
