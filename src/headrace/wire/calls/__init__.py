"""The table of API calls: `execution` for triggerers, pipelines and workers, `admin` for operators and scripts.

Each path is written here only. Routes, clients, the tests of repetition and access, and the reference pages come from the table.
"""
