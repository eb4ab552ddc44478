"""The public interface of the library: what `import tidegate` gives, and the input that the commands share with it.

Must not know: options of the command line, progress bars, terminals.
"""
