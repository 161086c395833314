"""Use-cases of the triggerer: run triggers, upload what they fire."""
