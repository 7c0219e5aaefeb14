"""Fork replicas from warm processes, which have started an interpreter and imported the framework already."""
