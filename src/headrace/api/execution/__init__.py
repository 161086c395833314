"""The execution API: what triggerers and pipelines call, one module for each aggregate."""
