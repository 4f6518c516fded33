"""All that touches PyTorch. Nothing here loads before a format is used."""
