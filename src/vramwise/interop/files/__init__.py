"""Files of other tools, taken as they are: recognized by what is in them, read as the command that runs them."""
