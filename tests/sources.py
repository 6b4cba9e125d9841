"""The trees of source files, and what they define."""
import ast
import functools


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def defined_in(path):
    """The names of functions, classes and module variables that a file defines."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign):
            yield from (name.id for target in node.targets for name in ast.walk(target)
                        if isinstance(name, ast.Name))
