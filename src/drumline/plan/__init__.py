"""WHAT WILL RUN: every replica with its command, environment and resources; then, given places, its launch.

Pure: no I/O, no clock, no asyncio, no third party. A Plan has no addresses; `bind` is the only place where
an environment is completed.
"""
