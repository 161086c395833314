"""The contract that each upstream fulfils, as a suite of tests."""
