"""What a group of consumers assigns: where its partitions begin, which are of a shard, and whether it is silent."""
