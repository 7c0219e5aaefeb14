"""The types of ``drumline.yml`` and its reader, which reports every problem with its line."""
