"""docs/testing.md: its example is run."""

from tests.docs import blocks, page


def test_the_example_runs() -> None:
    (example,) = blocks(page("docs/testing.md"), "python")
    exec(compile(example, "docs/testing.md", "exec"), {})  # noqa: S102
