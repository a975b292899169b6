"""What each name of the API answers: a body (a table) to a table that JSON holds."""
