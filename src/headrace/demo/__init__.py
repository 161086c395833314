"""The main job on real flights: feed, progress, independent check."""
