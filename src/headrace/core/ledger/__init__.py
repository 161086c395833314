"""The ledger of a shared stream: pending raw events, the subscribers that owe an answer, and receipts. Pure."""
