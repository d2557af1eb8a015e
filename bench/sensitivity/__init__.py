"""How well the detectors see, by sets that they were not made on: `lowpass bench sensitivity`."""
