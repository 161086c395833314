"""Pure decisions: no asyncio, clock, environment, randomness, logging or framework. `now` is an argument."""
