"""Numbers that a state gives to a person, by region."""
