"""Other forms of attention, each written like its formula."""
