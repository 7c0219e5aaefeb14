"""The state machine of a run: events, the decisions upon them, and the actions that follow.

Pure: no I/O, no clock, no randomness, no asyncio, no third-party library. Only `transition(plan, state, event)` decides
what to do; the state of a run is the fold of its events and decisions.
"""
