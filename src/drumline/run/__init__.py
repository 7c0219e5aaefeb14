"""WHAT HAPPENS: events, and what is decided upon each.

Pure: no I/O, no clock, no chance, no asyncio, no third party. `transition(plan, state, event)` is the only place where
it is decided what to do; a run's state is the fold of its events and decisions.
"""
