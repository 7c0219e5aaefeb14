"""Plans: every replica with its command, environment and resources. A plan and a placement make launches.

Pure: no I/O, no clock, no asyncio, no third-party library. A Plan has no addresses; only `bind` completes an
environment.
"""
