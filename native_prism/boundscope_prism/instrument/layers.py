"""Which layer an operator belongs to: a module, a scope, or itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils._pytree import tree_flatten_with_path, tree_leaves
from torch.utils.hooks import RemovableHandle

Observe: TypeAlias = Callable[[str, Tensor], None]

# The layer of what runs in the module itself, outside of its submodules.
ROOT = "(model)"
BACKWARD = " (backward)"
_COMPILED = "_orig_mod."
_KEY = "boundscope_prism.layer"


class Scope:
    """What Run.scope() gives: the layer's name, and where its output is shown."""

    def __init__(self, name: str, layers: Layers) -> None:
        self.name = name
        self._layers = layers

    def output(self, value: Any) -> Any:
        """Shows the layer's output, a tensor or a structure of them, to `observe`; returns it."""
        self._layers.show(self.name, value)
        return value


class Layers:
    """The stack of layers that are running. Modules enter and leave it by hooks, scopes by a context manager."""

    def __init__(self, observe: Observe | None) -> None:
        self._observe = observe
        # Name, module or scope, and the autograd nodes of the inputs.
        self._stack: list[tuple[str, object, set[Node]]] = []
        self._handles: list[RemovableHandle] = []
        self._shown: Counter[str] = Counter()
        self._ordinals: Counter[str] = Counter()

    def watch(self, model: nn.Module) -> None:
        """Names layers by the paths of the model's submodules; a module in two places has the first path."""
        for path, module in model.named_modules():
            name = path.replace(_COMPILED, "") or ROOT
            # A compiled module's name is its own module's; TorchScript takes no hooks.
            if name == "_orig_mod" or isinstance(module, torch.jit.ScriptModule):
                continue
            self._handles.append(
                module.register_forward_pre_hook(self._enter(name), prepend=True, with_kwargs=True)
            )
            self._handles.append(module.register_forward_hook(self._leave(name), always_call=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stack.clear()

    def current(self, operator: str) -> str:
        """The layer of an operator that begins now: in a backward pass that of its node, else the innermost that runs.

        Outside any layer the operator is its own, with its ordinal.
        """
        node = torch._C._current_autograd_node()
        if node is not None:
            layer = _metadata(node).get(_KEY)
            if layer is not None:
                return f"{layer}{BACKWARD}"
            operator = node.name()
        if self._stack and node is None:
            return self._stack[-1][0]
        ordinal = self._ordinals[operator]
        self._ordinals[operator] = ordinal + 1
        return f"{operator}_{ordinal}"

    @contextmanager
    def scope(self, name: str) -> Iterator[Scope]:
        scope = Scope(name, self)
        self._stack.append((name, scope, set()))
        try:
            yield scope
        finally:
            self._drop(scope)

    def show(self, name: str, value: Any) -> None:
        """`value`'s floating-point tensors to `observe`, outside of the instrumentation.

        A layer that runs again has "#2" and so on after its name; a tensor in a structure has its place there.
        """
        if self._observe is None:
            return
        self._shown[name] += 1
        count = self._shown[name]
        base = name if count == 1 else f"{name}#{count}"
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            for path, leaf in tree_flatten_with_path(value)[0]:
                if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
                    self._observe(base + torch.utils._pytree.keystr(path), leaf.detach())

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            before = _nodes((args, kwargs)) if torch.is_grad_enabled() else set()
            self._stack.append((name, module, before))

        return hook

    def _leave(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            before = self._drop(module)
            if before is None:
                return
            if torch.is_grad_enabled():
                _label(_nodes(output), before, name)
            self.show(name, output)

        return hook

    def _drop(self, entry: object) -> set[Node] | None:
        """Leaves the layer, and what an exception left inside it; None where it does not run."""
        if not any(running is entry for _, running, _ in self._stack):
            return None
        while True:
            _, running, before = self._stack.pop()
            if running is entry:
                return before


def _nodes(value: Any) -> set[Node]:
    return {
        leaf.grad_fn for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.grad_fn is not None
    }


def _label(outputs: set[Node], before: set[Node], name: str) -> None:
    """Gives the nodes from a module's outputs back to its inputs its name, but for those of its submodules."""
    todo = list(outputs)
    seen = set(before)
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        _metadata(node).setdefault(_KEY, name)
        todo.extend(following for following, _ in node.next_functions if following is not None)


def _metadata(node: Node) -> dict[str, Any]:
    """A node's own dictionary; torch's stub calls the property a method."""
    return node.metadata  # type: ignore[return-value]
