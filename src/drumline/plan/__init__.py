"""Plans: every replica with its command, environment and resources; with a placement, its launch.

Pure: no I/O, no clock, no asyncio, no third-party library. A Plan has no addresses; only `bind` completes an
environment.
"""
