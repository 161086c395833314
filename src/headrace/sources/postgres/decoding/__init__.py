"""Messages of pgoutput, column values, and the JSON text of raw events that is made of them. Pure."""
