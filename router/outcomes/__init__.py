"""Quality of answers: verifiers, a judge, and learning from their verdicts. A child process imports this package too,
so nothing is imported here."""
