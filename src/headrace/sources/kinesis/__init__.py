"""Read streams of Amazon Kinesis. Progress is in a table of DynamoDB."""
