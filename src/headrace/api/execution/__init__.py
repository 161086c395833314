"""Routes of the execution API, one module for each resource."""
