"""Replays a trace on the library's own timer and core, with a virtual clock."""

from importlib.util import find_spec

for _name in ("numpy", "pyarrow"):
    if find_spec(_name) is None:
        raise ImportError(f'replays need {_name}: pip install "aiopurgatory[pipeline]"', name=_name)
