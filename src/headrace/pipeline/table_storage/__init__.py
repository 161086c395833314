"""Where tables are: a folder of a disk, or a folder of a bucket."""
