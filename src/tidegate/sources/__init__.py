"""Where facts come from: files, to plain data and canonical tables with precise errors."""
