"""The import-linter contract that reads the table of layers in pyproject.toml."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils

ROOT = "inspector"
COMMANDS = ("cli", "__main__")
CORE_FOLDERS = ("optimizers",)


@dataclass(frozen=True)
class Layer:
    """One line of the table: a layer, and all that it may import."""

    name: str
    layers: frozenset[str]
    packages: frozenset[str]

    @classmethod
    def parse(cls, line: str) -> Layer:
        """Read `name: layer layer | package package`; `name: *` allows everything."""
        name, _, allowed = line.partition(":")
        layers, _, packages = allowed.partition("|")
        return cls(name.strip(), frozenset(layers.split()), frozenset(packages.split()))

    def may_import(self, layer: str | None, module: str) -> bool:
        """Whether this layer may import `module`, which is of `layer` or, if None, not the project's."""
        if "*" in self.layers:
            return True
        if layer is None:
            return module in self.packages or module in sys.stdlib_module_names
        return layer == self.name or layer in self.layers


class LayerTableContract(Contract):
    """Every import of the project is one that its layer's line allows."""

    type_name = "layer_table"

    layers = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """List the imports that no line allows, by importing layer, and the folders without a line."""
        options: Any = self
        contract_utils.remove_ignored_imports_and_report(
            graph=graph,
            ignore_imports=options.ignore_imports,
            unmatched_alerting=contract_utils.AlertLevel.NONE,
        )
        table = {layer.name: layer for layer in map(Layer.parse, options.layers)}
        illegal: defaultdict[str, list[str]] = defaultdict(list)
        for importer in sorted(graph.find_descendants(ROOT) | {ROOT}):
            name = layer_of(importer, graph)
            layer = table.get(name or "")
            if layer is None:
                illegal["a folder without a line in the table"].append(importer)
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if not layer.may_import(layer_of(imported, graph), imported):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    lines = ", ".join(str(detail["line_number"]) for detail in details)
                    illegal[f"{layer.name} may not import"].append(f"{importer} -> {imported} (l.{lines})")
        return ContractCheck(kept=not illegal, metadata={"illegal": dict(illegal)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print what `check` found, one import a line."""
        for title, imports in check.metadata["illegal"].items():
            output.print_error(f"{title}:")
            for each in imports:
                output.print_error(f"- {each}", bold=False)
        output.new_line()


def layer_of(module: str, graph: ImportGraph) -> str | None:
    """The layer of a module of the graph: None for a module that is not the project's."""
    root, _, inside = module.partition(".")
    if root != ROOT:
        return None
    top = inside.partition(".")[0]
    if top in COMMANDS:
        return "commands"
    if top in CORE_FOLDERS or not top:
        return "core"
    is_folder = bool(graph.find_children(f"{ROOT}.{top}"))
    return top if is_folder else "core"
