"""The pipeline: analyses the journals of one process or of a thousand machines, on Spark.

Each stage is a module of its name. It has functions DataFrame -> DataFrame, and ``arguments`` and ``run`` for the
command ``aiopurgatory pipeline``. The command imports a stage only to run it.
"""

from importlib.util import find_spec

for _name in ("jinja2", "pyarrow", "pyspark"):
    if find_spec(_name) is None:
        raise ImportError(f'the pipeline needs {_name}: pip install "aiopurgatory[pipeline]"', name=_name)
