"""The compiled halves of the ready-made operations, each in a module of the same name as its other half."""
