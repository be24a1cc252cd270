"""Run by Alembic, on the connection that `store.db.migrate` provides."""

from alembic import context

from dodona.store.db.migrate import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,
    transactional_ddl=True,
    version_table=VERSION_TABLE,  # a shared database may have another program's alembic_version
)
context.run_migrations()
