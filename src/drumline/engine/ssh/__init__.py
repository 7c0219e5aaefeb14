"""SSH hosts: every replica is a process of a host, kept there by the local engine over there."""
