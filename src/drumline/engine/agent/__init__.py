"""drumline on other machines: the agent there, how it is started, and the verbs that it understands."""
