"""What users write tasks with: runs outside of the pipelines, which may give their place up until a trigger fires."""
