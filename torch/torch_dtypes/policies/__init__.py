"""How a thread rounds and adds up now: rounding modes, accumulation, and blocks of them."""
