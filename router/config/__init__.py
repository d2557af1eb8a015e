"""Policy files → one frozen Config; every mistake with its place and its remedy."""
