"""What is unlike all that is known is unfamiliar, whatever the groups that were held out were like."""

import numpy as np

from router.estimate.fitted.familiarity import familiarity


def test_prompts_between_the_known_and_the_strangest_are_unfamiliar_where_known_ones_never_are() -> None:
    rng = np.random.default_rng(0)
    known = np.column_stack([*rng.normal(0.94, 0.02, (2, 500)), np.full(500, 0.1)])
    strange = np.column_stack([*rng.normal(0.1, 0.02, (2, 500)), np.full(500, 0.1)])
    trust = familiarity(known, strange)
    between = np.array([[0.7, 0.7, 0.1]])
    assert trust.unfamiliarity(between)[0] > 0.9
    assert trust.unfamiliarity(known).mean() < 0.1
