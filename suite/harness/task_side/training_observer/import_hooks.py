"""Call a function right after a module was executed, or at once if it is loaded already."""

import importlib.util
import sys


class Finder(object):
    """A sys.meta_path finder that finds nothing by itself: it extends what the others find."""

    def __init__(self, names, executed):
        """Take the names of modules, and a function to call with each when it was executed."""
        self._names, self._executed = frozenset(names), executed
        self._searching = set()  # names that the other finders are searching for

    def install(self):
        for name in sorted(self._names):
            if name in sys.modules:
                self._executed(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 (the import system's)
        if name not in self._names or name in self._searching:
            return None
        self._searching.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching.discard(name)
        if spec and hasattr(spec.loader, "exec_module"):
            self._extend(spec.loader)
        return spec

    def _extend(self, loader):
        """Let this loader, which loads one module, call the function afterwards.

        It remains the same object, because it also finds the module's resources and source.
        """
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            self._executed(module)

        loader.exec_module = exec_module
