"""Commands that inspect and repair: processes, streams, events, runs and their failures."""
