"""``torch-dtypes run``: any script under a setting, once or repeatedly."""
