"""Who may open a connection, and why. Whatever is not in the table reaches others through the door only."""

import ast
from collections.abc import Iterable, Iterator

from tests.architecture import PRODUCT, ROOT, imports, modules
from tests.tables import data, each_row

TABLES = data(__file__, "connections.yaml")
CLIENTS, CLIENT_MODULES, OPENERS = TABLES["clients"], TABLES["client_modules"], TABLES["openers"]
TRANSPORTS = frozenset({"HttpTransport", "LitellmTransport"})
APP = "router/app.py"

Modules = Iterable[tuple[str, ast.Module]]


def uses(tree: ast.Module) -> Iterator[str]:
    """Everything in a module that could reach another machine."""
    for name in imports(tree):
        top = name.partition(".")[0]
        if top in CLIENTS:
            yield top
        yield from (module for module in CLIENT_MODULES if name == module or name.startswith(f"{module}."))
        if name.rpartition(".")[2] in OPENERS:
            yield name.rpartition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in OPENERS:
            yield node.attr


def connecting(parsed: Modules) -> dict[str, set[str]]:
    return {place: found for place, tree in parsed if (found := set(uses(tree)))}


def test_only_the_named_files_open_connections_and_only_so() -> None:
    """A table with an entry that is not needed, or that has no reason, fails."""
    assert all(reason for reason, *_ in TABLES["open"].values())
    assert connecting(modules(*PRODUCT)) == {place: set(names) for place, (_, *names) in TABLES["open"].items()}


@each_row("line", TABLES["ways_out"])
def test_a_new_way_out_is_noticed(line: str) -> None:
    assert connecting([("router/new.py", ast.parse(line))])


def test_the_door_alone_is_given_transports() -> None:
    """They are made in the composition root; there they are handed over, told which engines are gone, and closed."""
    assert handlers(modules(*PRODUCT)) == {APP}
    (tree,) = (tree for _, tree in modules(APP))
    assert handed(tree) == {"EgressFilter", "close", "end"}


@each_row("line", TABLES["given_away"])
def test_a_transport_for_anybody_else_is_noticed(line: str) -> None:
    tree = ast.parse((ROOT / APP).read_text("utf-8"))
    (gateway,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GatewayProcess")
    gateway.body.append(ast.parse(f"def mutant(self):\n    {line}").body[0])
    assert handed(tree) != {"EgressFilter", "close"}


def test_nobody_else_names_the_port_that_transports_implement() -> None:
    named = {place for place, tree in modules("router") for name in imports(tree) if name.endswith("attempt.Transport")}
    assert named == {APP, "router/dispatch/egress.py"}


def handlers(parsed: Modules) -> set[str]:
    """Files that make or import a transport."""
    named = {place for place, tree in parsed if {name.rpartition(".")[2] for name in imports(tree)} & TRANSPORTS}
    return named | {place for place, tree in parsed if _makes(tree)}


def handed(tree: ast.Module) -> set[str]:
    """What happens to transports in the composition root: to whom they go, and what is called on them."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    kept = {target.attr for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in _kept(node)}
    outcomes: set[str] = set()
    for call in _makes(tree):
        owner = parents[call] if not isinstance(parents[call], ast.Tuple) else parents[parents[call]]
        if not (isinstance(owner, ast.Assign) and _kept(owner)):
            outcomes.add("elsewhere")
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        parent = parents[node]
        if node.attr in kept and not _within(node, "_transports", parents):
            outcomes.add(parent.attr if isinstance(parent, ast.Attribute) else "elsewhere")
        elif node.attr == "_transports":
            taker = parents[parent]
            outcomes.add(ast.unparse(taker.func) if isinstance(taker, ast.Call) else "elsewhere")
    return outcomes


def _makes(tree: ast.Module) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in TRANSPORTS]


def _kept(assign: ast.Assign) -> list[ast.Attribute]:
    """The attributes of `self` that an assignment keeps transports in."""
    made = any(isinstance(node, ast.Call) and node in _makes(ast.Module([assign], [])) for node in ast.walk(assign))
    targets = [node for target in assign.targets for node in ast.walk(target) if isinstance(node, ast.Attribute)]
    return targets if made else []


def _within(node: ast.AST, function: str, parents: dict[ast.AST, ast.AST]) -> bool:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return True
    return False
