"""Another policy over recorded traffic."""
