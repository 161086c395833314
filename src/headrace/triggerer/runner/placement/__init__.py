"""Where the triggers of a runner are: they are loaded from their workloads, and placed at their streams."""
