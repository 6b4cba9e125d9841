"""Eight exercises, a file each: the task as its docstring, the answer, and the mistakes by name."""
