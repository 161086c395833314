"""The only home of SQLAlchemy: tables, migrations, one module per aggregate."""
