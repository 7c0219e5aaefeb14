"""The state machine of a run: it takes events, makes decisions, and orders actions.

Pure: no I/O, no clock, no randomness, no asyncio, no third-party library. Only `transition(plan, state, event)` decides
what to do; the state of a run is the fold of its events and decisions.
"""
