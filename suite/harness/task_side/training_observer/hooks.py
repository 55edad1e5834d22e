"""Install hooks: rows that wrap functions of TensorFlow and Keras, guarded and in place.

A hook never changes what the program does. If it raises, it is switched off and reported, and the
program continues without it.
"""

import functools
import sys
from typing import Any, Callable, NamedTuple, Optional, Tuple

from reference_trainers.support import peer_errors

from .import_hooks import Finder

REPORTS = "training_reports"  # see reference_trainers/training_reports.py


def loaded(name):
    """Return a module that the program has imported."""
    return sys.modules[name]


class Hook(NamedTuple):
    """A row of the table: functions that are called around a function of TensorFlow or Keras.

    `before`, `after` and `always` get the observer and the Call. `after` is called if the function
    has returned, `always` also if it has raised, and before `after`.
    """

    name: str
    # Alternatives by version, each "module:attribute" or "module:Class.attribute"
    places: Tuple[str, ...]
    before: Optional[Callable[[Any, "Call"], None]] = None
    after: Optional[Callable[[Any, "Call"], None]] = None
    always: Optional[Callable[[Any, "Call"], None]] = None
    # The hook belongs to a library that need not be there, so its absence is not reported.
    optional: bool = False
    # Within Model.fit the hook does nothing, since the callbacks count the steps there.
    outside_fit: bool = False
    # Called before the function within Model.fit, if the hook does nothing else there.
    in_fit: Optional[Callable[[Any, "Call"], None]] = None
    # Called once with the Guarded, the function, and the function with the hook around it. It
    # returns a function that does the same as the latter, but faster if a call does what the last
    # one did. After a step of training the caches are cold, and each call in Python costs a
    # microsecond or more.
    repeated: Optional[Callable[["Guarded", Callable, Callable], Callable]] = None


class Call(object):
    """A call of a hooked function; `before` may set `args` and `kwargs`, and keep something."""

    __slots__ = ("args", "kept", "kwargs", "result")

    def __init__(self, args, kwargs):
        self.args, self.kwargs, self.kept, self.result = args, kwargs, None, None

    def argument(self, position, name, default=None):
        """Return an argument by its position (0 is `self`) or its name."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


class Guarded(object):
    """One hook at work; it is `off` for good after its first error."""

    def __init__(self, observer, hook):
        self.observer, self.hook, self.off = observer, hook, False

    def wrap(self, function):
        """Return the function with the hook around it."""
        before, after, always = self.hook.before, self.hook.after, self.hook.always
        outside_fit, in_fit = self.hook.outside_fit, self.hook.in_fit
        local, watches = self.observer.local, self.observer.watches

        def observed(*args, **kwargs):
            # In this order, as it costs least: tf.functions are called at every step.
            if (outside_fit and local.fits) or self.off or not watches():
                if in_fit and local.fits and not self.off and watches():
                    self.run(in_fit, Call(args, kwargs))
                return function(*args, **kwargs)
            call = Call(args, kwargs)
            if before:
                self.run(before, call)
            try:
                call.result = function(*call.args, **call.kwargs)
            finally:
                if always:
                    self.run(always, call)
            if after and not self.off:
                self.run(after, call)
            return call.result

        if self.hook.repeated:
            observed = self.hook.repeated(self, function, observed)
        functools.update_wrapper(observed, function)
        # AutoGraph calls what has `autograph_info__` as it is.
        vars(observed).update(autograph_info__={}, observed_by=self)
        return observed

    def run(self, part, call):
        """Run a part of the hook, whose calls of TensorFlow are not the program's."""
        local = self.observer.local
        local.is_inside = True
        try:
            part(self.observer, call)
        except Exception as error:
            self.handle(error)
        finally:
            local.is_inside = False

    def handle(self, error):
        """Switch the hook off after an error of its own."""
        if getattr(error, "of_program", False):
            raise error  # suite/programs/faulty_trainer.py fails at an event
        # A lost peer is the program's to meet, at its next step.
        if not peer_errors.is_from_peer_loss(error):
            self.fail(error)

    def fail(self, error):
        """Switch the hook off and report it."""
        if not self.off:
            self.off = True
            self.observer.report_failure(self.hook.name, error)


class Installation(object):
    """Install a table of hooks in modules that are loaded, and in others once they are."""

    def __init__(self, observer, table):
        self.hooks = {hook.name: Guarded(observer, hook) for hook in table}
        self.installed, self._lacking = set(), {}  # names; name -> places that lack the attribute
        self._patched = []  # (module or class, attribute, the program's function, the observed one)
        self._rows = {}
        for hook in table:
            for place in hook.places:
                module, _, attribute = place.partition(":")
                self._rows.setdefault(module, []).append((hook.name, attribute))
        self._observer = observer
        Finder(self._rows, self.patch).install()

    def patch(self, module):
        """Install the hooks of a module that was executed."""
        for name, attribute in self._rows[module.__name__]:
            try:
                found = self._patch(self.hooks[name], module, attribute)
            except Exception as error:
                self.hooks[name].fail(error)
                continue
            if found:
                self.installed.add(name)
            else:
                self._lacking.setdefault(name, []).append("%s:%s" % (module.__name__, attribute))

    def _patch(self, guarded, module, attribute):
        owner, last = module, attribute
        if "." in attribute:
            class_name, last = attribute.split(".")
            owner = vars(module).get(class_name)
        function = vars(owner).get(last) if owner is not None else None
        if function is None:  # a class may inherit it from one that another hook watches
            return hasattr(getattr(owner, last, None), "observed_by")
        if getattr(function, "observed_by", None) is guarded:
            return True  # the class is in two modules
        observed = guarded.wrap(function)
        owners = [owner]
        if owner is module:
            # Other modules may have imported the function from here.
            modules = [other for other in list(sys.modules.values()) if other is not module]
            owners += [m for m in modules if getattr(m, "__dict__", {}).get(last) is function]
        for one in owners:
            setattr(one, last, observed)
            self._patched.append((one, last, function, observed))
        return True

    def switch(self, on):
        """Put the hooks in their places, or the program's own functions, to compare the two.

        Modules that are loaded later get their hooks in any case.
        """
        for owner, attribute, function, observed in self._patched:
            setattr(owner, attribute, observed if on else function)

    def missing(self):
        """Return places that lack their attribute, of hooks that are installed nowhere.

        Of hooks that need not be there, only those whose module was loaded.
        """
        found = []
        for name, guarded in self.hooks.items():
            if name not in self.installed and not guarded.off:
                if name in self._lacking:
                    found += self._lacking[name]
                elif not guarded.hook.optional:
                    found.append(name)
        return sorted(found)
