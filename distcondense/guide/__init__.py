"""The first run, guided: a draft of the schema, the questions it cannot answer itself, what ε will buy, the command."""
