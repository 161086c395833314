"""The tables that revision 0001 creates, by aggregate. A later change of the schema is a later revision: nothing here changes."""
