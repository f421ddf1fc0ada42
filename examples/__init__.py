"""Complete programs that use soev. Each runs offline: `python -m examples.NAME`."""
