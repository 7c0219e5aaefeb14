"""The agent on other machines: how it is started, and its verbs."""
