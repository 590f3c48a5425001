"""Tables, schemas, cohorts, the codec and cells: what comes in, checked row by row."""
