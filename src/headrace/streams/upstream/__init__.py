"""One upstream of a shared stream: opened, polled, advanced, closed."""
