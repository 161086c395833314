"""One upstream per file, all passing one contract suite."""
