"""The supervisor of a run, on any engine, and the requests that commands send to it."""
