"""The loop breaker: agents that go round in circles, and spending that runs away."""
