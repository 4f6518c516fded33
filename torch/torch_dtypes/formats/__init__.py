"""Number formats and their dtypes: names, parameters, codes. The room below all others."""
