"""The deep tier: names, places and organisations, by a model that runs here. Only where the policy asks for it."""
