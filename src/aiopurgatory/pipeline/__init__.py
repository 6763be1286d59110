"""The pipeline: from the journals of one process or of a thousand machines to answers, on Spark.

Each stage is a module of its name: functions DataFrame -> DataFrame, and ``arguments`` and ``run`` for the command
``aiopurgatory pipeline``, which imports a stage when it is called.
"""
