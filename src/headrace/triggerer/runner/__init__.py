"""The runner: executes the workloads of a job."""
