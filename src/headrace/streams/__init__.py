"""Asyncio around the ledger: one poll per upstream, many readers."""
