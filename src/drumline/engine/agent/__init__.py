"""The agent: drumline's process on other machines, how it is started, and its verbs."""
