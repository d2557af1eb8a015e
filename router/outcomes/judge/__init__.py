"""A model that is asked whether answers are right: always twice, and believed only while it agrees with itself and
with those who know."""
